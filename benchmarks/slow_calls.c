/* Preloaded into a process, makes its calls on writers' files take time, as on a network filesystem, and counts them.
 *
 * A writer's file lies directly in the folder SLOW_CALLS_FOLDER (an absolute, resolved path) and its name ends in
 * ".jsonl". With SLOW_CALLS_STATE, a folder, all calls on what lies in it are slow too, and count as one kind.
 * SLOW_CALLS_SHARED is a file of `struct shared`, which the benchmark reads and sets while the process runs. While its
 * `hangs` is set, calls on the file SLOW_CALLS_HANGING do not return.
 * SLOW_CALLS_MOUNTS is a file that the process sees in place of /proc/self/mountinfo.
 *
 * The delay is a sleep inside the call. So it counts for the thread that makes the call alone, as a server's answer
 * would: an interpreter that releases its lock around the call goes on in other threads.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { OPEN, STAT, READ, CLOSE, LIST, STATE, KINDS };
struct shared {
    _Atomic uint64_t delay_ns;
    _Atomic uint64_t calls[KINDS];
    _Atomic uint64_t hangs;
};
enum { WRITERS = 1, STATES = 2, HANGING = 4 }; /* what a file is */
#define ENTRIES_A_CALL 128                    /* that a server gives of a folder */

#define MOST_DESCRIPTORS (1 << 20)
static _Atomic unsigned char slow[MOST_DESCRIPTORS]; /* by descriptor: what the file is */
static struct shared *shared;
static const char *folder, *states, *hanging, *mounts;

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}

#define CALL(name, ...)                                  \
    ({                                                   \
        static _Atomic(__typeof__(&name)) known;         \
        __typeof__(&name) function = known;              \
        if (!function) known = function = REAL(name);    \
        function(__VA_ARGS__);                           \
    })

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("SLOW_CALLS_SHARED");
    folder = getenv("SLOW_CALLS_FOLDER");
    states = getenv("SLOW_CALLS_STATE");
    hanging = getenv("SLOW_CALLS_HANGING");
    mounts = getenv("SLOW_CALLS_MOUNTS");
    if (!path || !folder) return;
    int fd = CALL(open, path, O_RDWR | O_CLOEXEC);
    if (fd < 0) abort();
    void *at = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) abort();
    CALL(close, fd);
    shared = at;
}

static void pause_ns(uint64_t ns)
{
    struct timespec left = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    while (nanosleep(&left, &left) && errno == EINTR) {
    }
}

/* Count a call on such a file and make it take its time; `errno` stays. */
static void slowly(int kind, int what)
{
    static __thread int exact;
    int before = errno;
    if (what & HANGING) {
        while (atomic_load(&shared->hangs)) pause_ns(10000000);
    }
    if (!(what & (WRITERS | STATES))) {
        errno = before;
        return;
    }
    atomic_fetch_add(&shared->calls[what & STATES ? STATE : kind], 1);
    uint64_t ns = atomic_load(&shared->delay_ns);
    if (ns) {
        if (!exact) exact = 1 + prctl(PR_SET_TIMERSLACK, 1); /* the default adds 50 us to each sleep */
        pause_ns(ns);
    }
    errno = before;
}

static int is_slow(int fd)
{
    return shared && fd >= 0 && fd < MOST_DESCRIPTORS ? slow[fd] : 0;
}

static int has_suffix(const char *path)
{
    size_t length = strlen(path);
    return length > 6 && !strcmp(path + length - 6, ".jsonl");
}

/* What follows `above` and a slash in `path`, or NULL. */
static const char *below(const char *path, const char *above)
{
    size_t length = above ? strlen(above) : 0;
    return length && !strncmp(path, above, length) && path[length] == '/' ? path + length + 1 : NULL;
}

/* What the file at an absolute path is. */
static int kind_of(const char *path)
{
    const char *name = below(path, folder);
    int what = hanging && !strcmp(path, hanging) ? HANGING : 0;
    if (name && has_suffix(path) && !strchr(name, '/')) what |= WRITERS;
    if (states && (below(path, states) || !strcmp(path, states))) what |= STATES;
    return what;
}

/* Write the path behind a descriptor to `path`; returns 0 if the descriptor has no path. */
static int path_of(int fd, char path[PATH_MAX])
{
    char link[32] = "/proc/self/fd/";
    char digits[12];
    int at = sizeof digits;
    digits[--at] = 0;
    do digits[--at] = (char)('0' + fd % 10);
    while (fd /= 10);
    strcat(link, digits + at);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return 1;
}

/* Note what the file is of a descriptor that was opened. */
static int opened(int fd)
{
    char found[PATH_MAX];
    int before = errno;
    if (shared && fd >= 0 && fd < MOST_DESCRIPTORS) {
        slow[fd] = (unsigned char)(path_of(fd, found) ? kind_of(found) : 0);
        if (slow[fd]) slowly(OPEN, slow[fd]);
    }
    errno = before;
    return fd;
}

/* A call of this kind on a path below `dir`. */
static void called(int kind, int dir, const char *path)
{
    char whole[PATH_MAX];
    int before = errno;
    if (shared && path && path[0] == '/') {
        slowly(kind, kind_of(path));
    } else if (shared && path && dir >= 0 && path[0] && path_of(dir, whole)) {
        size_t length = strlen(whole), more = strlen(path);
        if (length + more + 2 <= sizeof whole) {
            whole[length] = '/';
            memcpy(whole + length + 1, path, more + 1);
            slowly(kind, kind_of(whole));
        }
    } else if (shared && path && !path[0]) {
        slowly(kind, is_slow(dir));
    }
    errno = before;
}

static int looked(int result, int dir, const char *path)
{
    called(STAT, dir, path);
    return result;
}

static const char *instead(const char *path)
{
    return mounts && !strcmp(path, "/proc/self/mountinfo") ? mounts : path;
}

#define MODE_OF(flags)                                   \
    mode_t mode = 0;                                     \
    if (flags & (O_CREAT | O_TMPFILE)) {                 \
        va_list more;                                    \
        va_start(more, flags);                           \
        mode = va_arg(more, mode_t);                     \
        va_end(more);                                    \
    }

int open(const char *path, int flags, ...) { MODE_OF(flags) return opened(CALL(open, instead(path), flags, mode)); }
int open64(const char *path, int flags, ...) { MODE_OF(flags) return opened(CALL(open64, instead(path), flags, mode)); }
int openat(int dir, const char *path, int flags, ...) { MODE_OF(flags) return opened(CALL(openat, dir, path, flags, mode)); }
int openat64(int dir, const char *path, int flags, ...) { MODE_OF(flags) return opened(CALL(openat64, dir, path, flags, mode)); }

int stat(const char *path, struct stat *to) { return looked(CALL(stat, path, to), -1, path); }
int stat64(const char *path, struct stat64 *to) { return looked(CALL(stat64, path, to), -1, path); }
int lstat(const char *path, struct stat *to) { return looked(CALL(lstat, path, to), -1, path); }
int lstat64(const char *path, struct stat64 *to) { return looked(CALL(lstat64, path, to), -1, path); }
int fstatat(int dir, const char *path, struct stat *to, int flags) { return looked(CALL(fstatat, dir, path, to, flags), dir, path); }
int fstatat64(int dir, const char *path, struct stat64 *to, int flags) { return looked(CALL(fstatat64, dir, path, to, flags), dir, path); }
int statx(int dir, const char *path, int flags, unsigned mask, struct statx *to) { return looked(CALL(statx, dir, path, flags, mask, to), dir, path); }

#define ON(kind, type, name, parameters, ...)            \
    type name parameters                                 \
    {                                                    \
        if (is_slow(fd)) slowly(kind, slow[fd]);         \
        return CALL(name, __VA_ARGS__);                  \
    }

ON(STAT, int, fstat, (int fd, struct stat *to), fd, to)
ON(STAT, int, fstat64, (int fd, struct stat64 *to), fd, to)
ON(READ, ssize_t, read, (int fd, void *to, size_t size), fd, to, size)
ON(READ, ssize_t, pread, (int fd, void *to, size_t size, off_t at), fd, to, size, at)
ON(READ, ssize_t, pread64, (int fd, void *to, size_t size, off64_t at), fd, to, size, at)
ON(READ, ssize_t, readv, (int fd, const struct iovec *to, int count), fd, to, count)
ON(READ, ssize_t, preadv, (int fd, const struct iovec *to, int count, off_t at), fd, to, count, at)
ON(READ, ssize_t, preadv64, (int fd, const struct iovec *to, int count, off64_t at), fd, to, count, at)
ON(READ, ssize_t, preadv64v2, (int fd, const struct iovec *to, int count, off64_t at, int flags), fd, to, count, at, flags)

/* The end of a file is an attribute, which the server is asked for. */
off64_t lseek64(int fd, off64_t at, int whence)
{
    if (whence == SEEK_END && is_slow(fd)) slowly(STAT, slow[fd]);
    return CALL(lseek64, fd, at, whence);
}

/* What the sidecar writes lies in its state. */
ON(STATE, ssize_t, write, (int fd, const void *from, size_t size), fd, from, size)
ON(STATE, ssize_t, pwrite, (int fd, const void *from, size_t size, off_t at), fd, from, size, at)
ON(STATE, ssize_t, pwrite64, (int fd, const void *from, size_t size, off64_t at), fd, from, size, at)
ON(STATE, int, fsync, (int fd), fd)
ON(STATE, int, fdatasync, (int fd), fd)
ON(STATE, int, ftruncate, (int fd, off_t size), fd, size)
ON(STATE, int, ftruncate64, (int fd, off64_t size), fd, size)

#define AT(name, parameters, dir, path, ...)             \
    int name parameters                                  \
    {                                                    \
        called(STATE, dir, path);                        \
        return CALL(name, __VA_ARGS__);                  \
    }

AT(access, (const char *path, int mode), -1, path, path, mode)
AT(mkdir, (const char *path, mode_t mode), -1, path, path, mode)
AT(unlink, (const char *path), -1, path, path)
AT(unlinkat, (int dir, const char *path, int flags), dir, path, dir, path, flags)
AT(link, (const char *from, const char *path), -1, path, from, path)
AT(linkat, (int dir, const char *from, int to, const char *path, int flags), to, path, dir, from, to, path, flags)
AT(rename, (const char *from, const char *path), -1, path, from, path)
AT(renameat, (int dir, const char *from, int to, const char *path), to, path, dir, from, to, path)

#define LOCK(name)                                                                                          \
    int name(int fd, int command, ...)                                                                      \
    {                                                                                                       \
        va_list more;                                                                                       \
        va_start(more, command);                                                                            \
        void *given = va_arg(more, void *);                                                                 \
        va_end(more);                                                                                       \
        if ((command == F_SETLK || command == F_SETLKW || command == F_GETLK) && is_slow(fd)) slowly(STATE, slow[fd]); \
        return CALL(name, fd, command, given);                                                              \
    }

LOCK(fcntl)
LOCK(fcntl64)

static __thread struct { DIR *folder; int what, entries; } listing; /* the last one that this thread began */

static DIR *listed(DIR *opened)
{
    char path[PATH_MAX];
    if (opened && shared && path_of(dirfd(opened), path)) {
        listing.folder = opened;
        listing.what = !strcmp(path, folder) ? WRITERS : kind_of(path);
        listing.entries = 0;
        slowly(LIST, listing.what);
    }
    return opened;
}

DIR *opendir(const char *path) { return listed(CALL(opendir, path)); }
DIR *fdopendir(int fd) { return listed(CALL(fdopendir, fd)); }

struct dirent64 *readdir64(DIR *of)
{
    if (of == listing.folder && ++listing.entries % ENTRIES_A_CALL == 0) slowly(LIST, listing.what);
    return CALL(readdir64, of);
}

int close(int fd)
{
    int what = is_slow(fd);
    if (what) {
        slow[fd] = 0;
        slowly(CLOSE, what);
    }
    return CALL(close, fd);
}
