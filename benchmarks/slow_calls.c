/* Preloaded into a process, makes its calls on writers' files take time, as on a network filesystem, and counts them.
 *
 * A writer's file lies directly in the folder SLOW_CALLS_FOLDER (an absolute, resolved path) and its name ends in
 * ".jsonl". SLOW_CALLS_SHARED is a file of `struct shared`, which the benchmark reads and sets while the process runs.
 * SLOW_CALLS_MOUNTS is a file that the process sees in place of /proc/self/mountinfo.
 *
 * The delay is a sleep inside the call. So it counts for the thread that makes the call alone, as a server's answer
 * would: an interpreter that releases its lock around the call goes on in other threads.
 */
#define _GNU_SOURCE
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

enum { OPEN, STAT, READ, CLOSE, KINDS };
struct shared {
    _Atomic uint64_t delay_ns;
    _Atomic uint64_t calls[KINDS];
};

#define MOST_DESCRIPTORS (1 << 20)
static _Atomic unsigned char slow[MOST_DESCRIPTORS]; /* by descriptor: is it a writer's file */
static struct shared *shared;
static const char *folder, *mounts;
static size_t folder_length;

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
    mounts = getenv("SLOW_CALLS_MOUNTS");
    if (!path || !folder) return;
    folder_length = strlen(folder);
    int fd = CALL(open, path, O_RDWR | O_CLOEXEC);
    if (fd < 0) abort();
    void *at = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) abort();
    CALL(close, fd);
    shared = at;
}

/* Count a call and make it take its time; `errno` stays. */
static void slowly(int kind)
{
    static __thread int exact;
    int before = errno;
    atomic_fetch_add(&shared->calls[kind], 1);
    uint64_t ns = atomic_load(&shared->delay_ns);
    if (ns) {
        if (!exact) exact = 1 + prctl(PR_SET_TIMERSLACK, 1); /* the default adds 50 us to each sleep */
        struct timespec left = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
        while (nanosleep(&left, &left) && errno == EINTR) {
        }
    }
    errno = before;
}

static int is_slow(int fd)
{
    return shared && fd >= 0 && fd < MOST_DESCRIPTORS && slow[fd];
}

static int has_suffix(const char *path)
{
    size_t length = strlen(path);
    return length > 6 && !strcmp(path + length - 6, ".jsonl");
}

static int is_writers(const char *path)
{
    return !strncmp(path, folder, folder_length) && path[folder_length] == '/' && !strchr(path + folder_length + 1, '/');
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

/* Note whether a descriptor that was opened by `path` is of a writer's file. */
static int opened(int fd, const char *path)
{
    char found[PATH_MAX];
    int before = errno;
    if (shared && fd >= 0 && fd < MOST_DESCRIPTORS) {
        slow[fd] = has_suffix(path) && path_of(fd, found) && is_writers(found);
        if (slow[fd]) slowly(OPEN);
    }
    errno = before;
    return fd;
}

/* Like `stat` of a path below `dir`. */
static int looked(int result, int dir, const char *path)
{
    char whole[PATH_MAX];
    int before = errno;
    if (shared && path && has_suffix(path)) {
        if (path[0] == '/') {
            if (is_writers(path)) slowly(STAT);
        } else if (dir >= 0 && !strchr(path, '/') && path_of(dir, whole) && !strcmp(whole, folder)) {
            slowly(STAT);
        }
    }
    errno = before;
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

int open(const char *path, int flags, ...) { MODE_OF(flags) return opened(CALL(open, instead(path), flags, mode), path); }
int open64(const char *path, int flags, ...) { MODE_OF(flags) return opened(CALL(open64, instead(path), flags, mode), path); }
int openat(int dir, const char *path, int flags, ...) { MODE_OF(flags) return opened(CALL(openat, dir, path, flags, mode), path); }
int openat64(int dir, const char *path, int flags, ...) { MODE_OF(flags) return opened(CALL(openat64, dir, path, flags, mode), path); }

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
        if (is_slow(fd)) slowly(kind);                   \
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
    if (whence == SEEK_END && is_slow(fd)) slowly(STAT);
    return CALL(lseek64, fd, at, whence);
}

int close(int fd)
{
    if (is_slow(fd)) {
        slow[fd] = 0;
        slowly(CLOSE);
    }
    return CALL(close, fd);
}
