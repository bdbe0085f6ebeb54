/* rlship.h: log metrics of a training job from C99 or C++, without any dependency.
 *
 * In ONE source file, before all other includes:
 *
 *     #define RLSHIP_IMPLEMENTATION
 *     #include "rlship.h"
 *
 * and everywhere else just the include. Link with -pthread. README.md beside this file is the page of usage.
 *
 * Every function may be called by any thread (by no signal handler), takes NULL for the writer and then does nothing,
 * leaves errno as it was, and waits for no disk, except rlship_flush and rlship_close for as long as they say. Nothing
 * here ends, throws, or installs a signal handler; what cannot be done is left out, counted, and said once on stderr.
 * Texts are UTF-8; what is not becomes U+FFFD.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef RLSHIP_H
#define RLSHIP_H

#if defined(RLSHIP_IMPLEMENTATION) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* fdatasync, pthread_atfork and the monotonic clock, also with -std=c99 */
#endif

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RLSHIP_VERSION "1"
#define RLSHIP_NO_STEP INT64_C(-1) /* in place of a step: a stream record */

typedef struct rlship rlship; /* one actor of this process, with a file of its own */

/* Who writes. What is not given (NULL, -1) comes from RLSHIP_REPLICA, RLSHIP_RANK, RLSHIP_WORLD, RLSHIP_ATTEMPT, else
 * from the launcher's variables. Start from RLSHIP_OPTIONS:  rlship_options options = RLSHIP_OPTIONS; */
typedef struct {
    int64_t rank, world, attempt;
    const char *replica;
    const char *axis;   /* what steps count; "global_step" */
    const char *parent; /* id of the writer whose child process this is; forked children need not be told */
} rlship_options;
#define RLSHIP_OPTIONS {-1, -1, -1, NULL, NULL, NULL}

typedef struct {
    const char *name;
    double value;
} rlship_metric;

/* A named value of an event or of a sample's row. */
typedef struct {
    const char *name;
    char kind; /* 's', 'n', 'b', 'j': made by the functions below */
    const char *text;
    double number;
} rlship_attr;

enum { RLSHIP_PER_RANK = 1, RLSHIP_STREAM = 2 };

typedef struct {
    rlship *writer;
    const char *name;
    double t, began;
} rlship_span;

/* Opens a writer of the experiment `dir`; NULL or "" for dir and actor: RLSHIP_DIR, RLSHIP_ACTOR. `options` may be NULL.
 * NULL comes back where RLSHIP_DISABLE is set, or nothing says where to write. The same dir and actor again give the same
 * writer. It is closed at exit; its memory stays. */
rlship *rlship_open(const char *dir, const char *actor, const rlship_options *options);

/* `reduce`: names with commas between them, such as "max,mean", or NULL; `unit` may be NULL; flags: RLSHIP_PER_RANK… */
void rlship_define(rlship *w, const char *metric, const char *reduce, const char *unit, unsigned flags);

void rlship_log(rlship *w, int64_t step, const char *name, double value);
void rlship_log_metrics(rlship *w, int64_t step, const rlship_metric *metrics, size_t count); /* one record */
void rlship_log_weighted(rlship *w, int64_t step, const rlship_metric *metrics, size_t count, double weight);
/* Many observations of one metric; `weights` is NULL or has `count` too. */
void rlship_log_list(rlship *w, int64_t step, const char *name, const double *values, const double *weights,
                     size_t count);

/* rlship_span span = rlship_span_begin(w, "rollout"); … rlship_span_end(&span, step, NULL or the error's name); */
rlship_span rlship_span_begin(rlship *w, const char *name); /* keeps the pointer to the name */
void rlship_span_end(const rlship_span *span, int64_t step, const char *error);
/* The same for something that took `seconds` until now. */
void rlship_span_add(rlship *w, int64_t step, const char *name, double seconds, const char *error);

rlship_attr rlship_text(const char *name, const char *value);
rlship_attr rlship_number(const char *name, double value);
rlship_attr rlship_bool(const char *name, int value);
rlship_attr rlship_json(const char *name, const char *value); /* valid JSON, which is not checked */
void rlship_event(rlship *w, int64_t step, const char *name, const rlship_attr *attrs, size_t count);
/* `score` may be NULL. */
void rlship_sample(rlship *w, int64_t step, const char *table, const double *score, const rlship_attr *row,
                   size_t count);

/* What a group of samples is at one hop. What is not set (0, NULL) is not recorded. Tokens and mask are those of all samples,
 * one sample after the other, without padding. */
typedef struct {
    int64_t n;                 /* how many samples */
    const char *const *sample; /* their names; NULL: they are known by their tokens */
    const int64_t *lengths;    /* how many tokens each sample has */
    const int32_t *tokens;
    const int64_t *tokens64;   /* the same, where they do not fit in 32 bits */
    const unsigned char *mask; /* for each token, whether it counts in the loss */
    const double *reward, *advantage; /* one for each sample */
    const int64_t *response;          /* how many tokens the model generated */
    const int64_t *version;           /* two: the least and the greatest version of the weights that generated */
    const int64_t *part;              /* two: these are the samples of part i of k */
    int64_t retry, passes;            /* the number of the dispatch, from 0; how often the step trains on the group */
    const char *why;                  /* why it was dropped */
    int bf16;                         /* round numbers to bfloat16 */
} rlship_group;
/* `hop`: generated, rewarded, dropped, trained, or a name of your own. `key` names the group, another one each time that it
 * is generated. Of all keys a share is kept (RLSHIP_LEDGER_SHARE, 1/8), the same in every process. */
void rlship_ledger(rlship *w, int64_t step, const char *hop, const char *key, const rlship_group *group);
/* Which weights a version has, on both sides of a weight sync; `fingerprint` may be NULL. */
void rlship_weights(rlship *w, int64_t step, int64_t version, const char *fingerprint);

/* What the run is: what was set, such as hyper-parameters, and results. A later call updates by name. */
void rlship_config(rlship *w, const rlship_attr *values, size_t count);
void rlship_summary(rlship *w, const rlship_attr *values, size_t count);
/* Other members of section 5.8 of SPEC.md: the texts name, notes, group, project, entity and job_type; exit_code, a number
 * in -255..255; tags, a JSON array of texts; facts, a JSON object. */
void rlship_run(rlship *w, const rlship_attr *members, size_t count);

void rlship_barrier(rlship *w, int64_t step);  /* nothing more of steps up to this one will come */
void rlship_rollback(rlship *w, int64_t step); /* the process went back, to do this step again */

/* Wait until all that was logged before is in the file, at most 5 s. 1 if it is, else 0. */
int rlship_flush(rlship *w);
/* Write what is left and the `close`, at most 5 s. Later calls do nothing. 1 if all is in the file, else 0. */
int rlship_close(rlship *w);
/* How many lines were left out because the buffer was full, or a call could not be understood. */
uint64_t rlship_dropped(rlship *w);

#ifdef __cplusplus
}
#endif
#endif /* RLSHIP_H */

#ifdef RLSHIP_IMPLEMENTATION
#undef RLSHIP_IMPLEMENTATION

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/vfs.h>
#endif

enum {
    RLSHIP__LINE = 1 << 20,     /* the longest line, its LF included */
    RLSHIP__CAPACITY = 8 << 20, /* bytes waiting to be written */
    RLSHIP__RESERVE = 1 << 20,  /* as many more for barriers, defines and rollbacks */
    RLSHIP__NAME = 1000,        /* characters */
    RLSHIP__SETTING = 65536,    /* characters of a text of the run's configuration */
    RLSHIP__SECRET = 16,        /* characters that a token has at least */
    RLSHIP__LIST = 262144       /* observations of one call */
};
#define RLSHIP__LAST_STEP INT64_C(9007199254740991)
#define RLSHIP__FLUSH_S 0.5
#define RLSHIP__BEAT_S 10.0
#define RLSHIP__LOOK_S 5.0
#define RLSHIP__END_S 5.0
#define RLSHIP__BACKOFF_S 0.1
#define RLSHIP__BACKOFF_MOST_S 5.0

/* What is said once each. */
enum {
    RLSHIP__VALUE = 1 << 0,
    RLSHIP__WEIGHT = 1 << 1,
    RLSHIP__BAD_NAME = 1 << 2,
    RLSHIP__STEP = 1 << 3,
    RLSHIP__FULL = 1 << 4,
    RLSHIP__THREAD = 1 << 5,
    RLSHIP__WRITE = 1 << 6,
    RLSHIP__MEMORY = 1 << 7,
    RLSHIP__IDENTITY = 1 << 8,
    RLSHIP__SETTINGS = 1 << 9,
    RLSHIP__BACK = 1 << 10,
    RLSHIP__FORWARD = 1 << 11,
    RLSHIP__AFTER = 1 << 12
};

/* --- text that grows --- */

typedef struct {
    char *data;
    size_t size, room;
    int broken; /* no memory: what was added since is missing */
} rlship__text;

static int rlship__grow(rlship__text *text, size_t more) {
    size_t room = text->room ? text->room : 512;
    char *data;
    if (text->size + more <= text->room) return 1;
    while (room < text->size + more) room *= 2;
    data = (char *)realloc(text->data, room);
    if (!data) return 0;
    text->data = data;
    text->room = room;
    return 1;
}

static void rlship__add(rlship__text *text, const char *data, size_t size) {
    if (text->broken || !size) return;
    if (!rlship__grow(text, size)) {
        text->broken = 1;
        return;
    }
    memcpy(text->data + text->size, data, size);
    text->size += size;
}

static void rlship__adds(rlship__text *text, const char *data) { rlship__add(text, data, strlen(data)); }

static void rlship__free(rlship__text *text) {
    free(text->data);
    memset(text, 0, sizeof *text);
}

/* For integers and plain texts only: a double would take its decimal point from the locale. */
static void rlship__addf(rlship__text *text, const char *format, ...) {
    char small[160];
    va_list list;
    int size;
    va_start(list, format);
    size = vsnprintf(small, sizeof small, format, list);
    va_end(list);
    if (size > 0) rlship__add(text, small, (size_t)size < sizeof small ? (size_t)size : sizeof small - 1);
}

/* How many bytes the character at `s` has. 0: it is not UTF-8, and `*bad` bytes of it are one U+FFFD. */
static int rlship__character(const unsigned char *s, int *bad) {
    int size = *s < 0x80 ? 1 : *s >= 0xC2 && *s < 0xE0 ? 2 : (*s & 0xF0) == 0xE0 ? 3 : *s >= 0xF0 && *s < 0xF5 ? 4 : 0;
    int i;
    *bad = 1;
    for (i = 1; i < size; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    if (size == 3 && s[0] == 0xED && s[1] >= 0xA0) { /* half a surrogate pair */
        *bad = 3;
        return 0;
    }
    if ((size == 3 && s[0] == 0xE0 && s[1] < 0xA0) || (size == 4 && s[0] == 0xF0 && s[1] < 0x90) ||
        (size == 4 && s[0] == 0xF4 && s[1] >= 0x90))
        return 0;
    return size;
}

/* `s` as a JSON string of at most `most` bytes, cut between characters. `*characters`, if wanted, is how many s has. */
static void rlship__string(rlship__text *text, const char *string, size_t most, int64_t *characters) {
    const unsigned char *s = (const unsigned char *)string;
    size_t used = 2;
    int64_t count = 0;
    int full = 0;
    rlship__add(text, "\"", 1);
    while (*s) {
        const unsigned char *plain = s;
        char escape[8];
        const char *piece = escape;
        int bad, size, width;
        while (*s >= 0x20 && *s < 0x7F && *s != '"' && *s != '\\') s++;
        if (s != plain) {
            size_t run = (size_t)(s - plain), room = full || used > most ? 0 : most - used;
            count += (int64_t)run;
            if (run > room) run = room, full = 1;
            rlship__add(text, (const char *)plain, run);
            used += run;
            continue;
        }
        size = rlship__character(s, &bad);
        width = size;
        if (!size)
            piece = "\xEF\xBF\xBD", width = 3, size = bad;
        else if (*s == '"' || *s == '\\')
            escape[0] = '\\', escape[1] = (char)*s, width = 2;
        else if (*s < 0x20)
            width = *s == '\n'   ? snprintf(escape, sizeof escape, "\\n")
                    : *s == '\t' ? snprintf(escape, sizeof escape, "\\t")
                                 : snprintf(escape, sizeof escape, "\\u%04x", *s);
        else
            piece = (const char *)s;
        if (used + (size_t)width > most) full = 1;
        if (!full) {
            rlship__add(text, piece, (size_t)width);
            used += (size_t)width;
        }
        count++;
        s += size;
    }
    rlship__add(text, "\"", 1);
    if (characters) *characters = count;
}

static uint64_t rlship__bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* By its bits: with -ffast-math compilers take `x != x` for false, and denormal numbers for 0. */
static int rlship__finite(double x) { return (rlship__bits(x) >> 52 & 0x7FF) != 0x7FF; }

static int rlship__weight(double x) { return rlship__finite(x) && (x >= 0 || !(rlship__bits(x) << 1)); }

/* By which names, as they stand in the line, are known again. */
static uint64_t rlship__hash(const char *data, size_t size) {
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    while (size--) hash = (hash ^ (unsigned char)*data++) * UINT64_C(0x100000001B3);
    return hash;
}

/* The shortest of 15 to 17 digits that reads back as x; the three words for what is not finite. */
static void rlship__double(rlship__text *text, double x) {
    char digits[40];
    uint64_t bits = rlship__bits(x);
    char *from, *to;
    int precision;
    if (!rlship__finite(x)) {
        rlship__adds(text, bits << 12 ? "\"NaN\"" : bits >> 63 ? "\"-Infinity\"" : "\"Infinity\"");
    } else if (!(bits << 1)) {
        rlship__adds(text, bits >> 63 ? "-0.0" : "0");
    } else {
        for (precision = 15; precision < 18; precision++) {
            snprintf(digits, sizeof digits, "%.*g", precision, x);
            if (precision == 17 || rlship__bits(strtod(digits, NULL)) == bits) break;
        }
        for (from = to = digits; *from; from++) { /* whatever the locale writes for the point */
            if (strchr("0123456789+-e", *from))
                *to++ = *from;
            else if (to == digits || to[-1] != '.')
                *to++ = '.';
        }
        rlship__add(text, digits, (size_t)(to - digits));
    }
}

static void rlship__time(rlship__text *text, double t) {
    int64_t us = (int64_t)(t * 1e6 + 0.5);
    rlship__addf(text, "\"t\":%" PRId64 ".%06d", us / 1000000, (int)(us % 1000000));
}

static double rlship__clock(clockid_t which) {
    struct timespec now;
    clock_gettime(which, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double rlship__now(void) { return rlship__clock(CLOCK_REALTIME); }
static double rlship__ticks(void) { return rlship__clock(CLOCK_MONOTONIC); }

static uint64_t rlship__random(void) {
    uint64_t bits = 0;
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, &bits, sizeof bits) != (ssize_t)sizeof bits)
        bits ^= (uint64_t)(rlship__now() * 1e6) * UINT64_C(0x9E3779B97F4A7C15) ^ ((uint64_t)getpid() << 40);
    if (fd >= 0) close(fd);
    return bits;
}

/* --- lines that are lost: how many, of which steps --- */

typedef struct {
    uint64_t stepped, unstepped;
    int64_t first, last;
} rlship__tally;

static void rlship__count(rlship__tally *tally, int64_t step) {
    if (step < 0) {
        tally->unstepped++;
        return;
    }
    if (!tally->stepped || step < tally->first) tally->first = step;
    if (!tally->stepped || step > tally->last) tally->last = step;
    tally->stepped++;
}

static void rlship__merge(rlship__tally *into, rlship__tally *from) {
    if (from->stepped) {
        uint64_t stepped = into->stepped + from->stepped;
        rlship__count(into, from->first);
        rlship__count(into, from->last);
        into->stepped = stepped;
    }
    into->unstepped += from->unstepped;
    memset(from, 0, sizeof *from);
}

/* A record that has a step begins with it, so that the lines themselves tell it. */
static void rlship__count_lines(rlship__tally *tally, const char *data, size_t size) {
    const char *end = data + size;
    while (data < end) {
        const char *lf = (const char *)memchr(data, '\n', (size_t)(end - data));
        int stepped = end - data > 8 && memcmp(data, "{\"step\":", 8) == 0;
        if (!lf) return;
        rlship__count(tally, stepped ? strtoll(data + 8, NULL, 10) : -1);
        data = lf + 1;
    }
}

static void rlship__gaps(rlship__text *text, rlship__tally *tally) {
    double t = rlship__now();
    if (tally->stepped) {
        rlship__addf(text, "{\"kind\":\"gap\",\"n\":%" PRIu64 ",\"from\":%" PRId64 ",\"to\":%" PRId64 ",", tally->stepped,
                     tally->first, tally->last);
        rlship__time(text, t);
        rlship__adds(text, "}\n");
    }
    if (tally->unstepped) {
        rlship__addf(text, "{\"kind\":\"gap\",\"n\":%" PRIu64 ",", tally->unstepped);
        rlship__time(text, t);
        rlship__adds(text, "}\n");
    }
    memset(tally, 0, sizeof *tally);
}

/* --- the writer --- */

/* What belongs to the writing thread alone. */
typedef struct rlship__file {
    int fd, created, header_safe, network;
    int repeat; /* a new file begins with what was defined before */
    dev_t dev;
    ino_t ino;
    off_t offset;
    char *path;
    rlship__text chunk, front; /* front goes first: the header, or what follows a line that may be torn */
    size_t chunk_at, front_at; /* bytes of them that are in the file */
    rlship__tally unsynced, unseen, lost;
    double look_at;
    struct rlship__file *inherited; /* in a forked child: the parent's, unused here */
} rlship__file;

typedef struct rlship__entry {
    char *name, *line;
    size_t size;
    struct rlship__entry *next;
} rlship__entry;

struct rlship {
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    pthread_t thread, opener;
    char id[17];
    char *folder, *actor, *replica, *axis, *parent, *named_parent; /* named_parent: the id of the writer forked from */
    int64_t rank, world, attempt;
    rlship__text pending;
    size_t in_flight;
    rlship__tally dropped;
    uint64_t dropped_ever;
    rlship__entry *defined, *ran; /* what a new file repeats: definitions, and `run` records */
    size_t defined_size, ran_size;
    int owed; /* a full buffer dropped a `run` record */
    uint64_t asked, served;
    unsigned told;
    int64_t promised, logged, at; /* one more than the step of a barrier, of the last log, and that under way; 0: no step */
    int running, woken, closed, ended;
    rlship__file *file;
    struct rlship *next;
};

static pthread_mutex_t rlship__registry = PTHREAD_MUTEX_INITIALIZER;
static rlship *rlship__all;
static int rlship__hooked;

static void *rlship__run(void *);
static void rlship__append(rlship *, const char *, size_t, int64_t step, int control);

/* One line on stderr. It does not wait for the reader of a pipe, and a closed pipe ends no process. */
static void rlship__say(const char *format, ...) {
    char line[600];
    struct pollfd ready;
    sigset_t ours, before, there;
    va_list list;
    int size, head = snprintf(line, sizeof line, "rlship: ");
    va_start(list, format);
    size = vsnprintf(line + head, sizeof line - (size_t)head - 1, format, list);
    va_end(list);
    if (size < 0) return;
    size += head;
    if ((size_t)size > sizeof line - 2) size = (int)sizeof line - 2;
    /* Names may hold anything: what moves the cursor is a blank, in UTF-8 too. */
    for (; head < size; head++) {
        unsigned char c = (unsigned char)line[head];
        int wide = c == 0xC2 && head + 1 < size && ((unsigned char)line[head + 1] & 0xE0) == 0x80;
        if (c < 0x20 || c == 0x7F || wide) line[head] = ' ';
        if (wide) line[++head] = ' ';
    }
    line[size++] = '\n';
    ready.fd = STDERR_FILENO;
    ready.events = POLLOUT;
    ready.revents = 0;
    if (poll(&ready, 1, 0) != 1 || !(ready.revents & POLLOUT)) return;
    /* A closed pipe, and a file as long as it may be, send this thread a signal: it is taken back here. */
    sigemptyset(&ours);
    sigaddset(&ours, SIGPIPE);
    sigaddset(&ours, SIGXFSZ);
    sigpending(&there);
    pthread_sigmask(SIG_BLOCK, &ours, &before);
    if (write(STDERR_FILENO, line, (size_t)size) < 0 && (errno == EPIPE || errno == EFBIG)) {
        int sent = errno == EPIPE ? SIGPIPE : SIGXFSZ;
        if (!sigismember(&there, sent)) {
            sigset_t now;
            sigemptyset(&ours);
            sigaddset(&ours, sent);
            sigpending(&now); /* where it is ignored nothing was sent */
            if (sigismember(&now, sent)) sigwait(&ours, &sent);
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Say it once for each topic, on stderr and in the file. With the lock held. */
static void rlship__tell(rlship *w, unsigned topic, const char *where, const char *what) {
    rlship__text line = {NULL, 0, 0, 0};
    if (w->told & topic) return;
    w->told |= topic;
    rlship__say("%s: %s", where, what);
    rlship__adds(&line, "{\"kind\":\"event\",");
    rlship__time(&line, rlship__now());
    rlship__adds(&line, ",\"name\":\"rlship_error\",\"attrs\":{\"where\":");
    rlship__string(&line, where, 2000, NULL);
    rlship__adds(&line, ",\"error\":");
    rlship__string(&line, what, 2000, NULL);
    rlship__adds(&line, "}}\n");
    if (!line.broken) rlship__append(w, line.data, line.size, -1, 0);
    rlship__free(&line);
}

static void rlship__drop(rlship *w, int64_t step) {
    rlship__count(&w->dropped, step);
    w->dropped_ever++;
}

static int rlship__fits(rlship *w, size_t size, int control) {
    return w->in_flight + w->pending.size + size <= (size_t)RLSHIP__CAPACITY + (control ? RLSHIP__RESERVE : 0) &&
           rlship__grow(&w->pending, size);
}

/* Put the gap records of dropped lines in, if they and `more` bytes fit. */
static int rlship__tell_dropped(rlship *w, size_t more, int control) {
    if (!w->dropped.stepped && !w->dropped.unstepped) return 1;
    if (!rlship__fits(w, more + 400, control)) return 0;
    rlship__gaps(&w->pending, &w->dropped);
    return 1;
}

/* Add whole lines to the buffer, or drop them. With the lock held. */
static void rlship__append(rlship *w, const char *lines, size_t size, int64_t step, int control) {
    if (w->owed && rlship__fits(w, w->ran_size + size + 400, 1)) {
        rlship__entry *entry;
        w->owed = 0;
        for (entry = w->ran; entry; entry = entry->next) rlship__add(&w->pending, entry->line, entry->size);
    }
    if (!rlship__tell_dropped(w, size, control) || !rlship__fits(w, size, control)) {
        rlship__drop(w, step);
        return;
    }
    rlship__add(&w->pending, lines, size);
    if (!w->woken && w->pending.size > RLSHIP__CAPACITY / 4) {
        w->woken = 1;
        pthread_cond_signal(&w->wake);
    }
}

static void rlship__identify(rlship *w) { snprintf(w->id, sizeof w->id, "%016" PRIx64, rlship__random()); }

/* Begin writing in this process: at open, and at a forked child's first call. With the lock held. */
static int rlship__start(rlship *w) {
    sigset_t all, before;
    int failed;
    if (!w->file) {
        w->file = (rlship__file *)calloc(1, sizeof *w->file);
        if (!w->file) return 0;
        w->file->fd = -1;
        rlship__identify(w);
        w->opener = pthread_self();
    }
    /* The job's signals are handled in its own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&w->thread, NULL, rlship__run, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) rlship__tell(w, RLSHIP__THREAD, "open", "no thread can be started, which is tried again at each call");
    w->running = !failed;
    return w->running;
}

/* Take the lock for a call; 0 where it is to do nothing. */
static int rlship__enter(rlship *w) {
    if (!w) return 0;
    pthread_mutex_lock(&w->lock);
    if (w->closed) {
        pthread_mutex_unlock(&w->lock);
        return 0;
    }
    if (!w->running) rlship__start(w);
    return 1;
}

static void rlship__leave(rlship *w) { pthread_mutex_unlock(&w->lock); }

static void rlship__rouse(rlship *w) {
    w->woken = 1;
    pthread_cond_signal(&w->wake);
}

/* Give a line to the writer and free it. */
static void rlship__give(rlship *w, rlship__text *line, int64_t step, int control) {
    if (rlship__enter(w)) {
        if (line->broken || line->size > RLSHIP__LINE) {
            rlship__tell(w, RLSHIP__MEMORY, "log", line->broken ? "no memory" : "a line does not fit in 1 MiB");
            rlship__drop(w, step);
        } else {
            rlship__append(w, line->data, line->size, step, control);
        }
        rlship__leave(w);
    }
    rlship__free(line);
}

static void rlship__refuse(rlship *w, unsigned topic, const char *where, const char *format, ...) {
    char what[300];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    if (rlship__enter(w)) {
        rlship__tell(w, topic, where, what);
        rlship__leave(w);
    }
}

/* 0, and reported, where a step is not valid. `needed`: the call cannot do without. */
static int rlship__step(rlship *w, const char *where, int64_t step, int needed) {
    if (step >= (needed ? 0 : -1) && step <= RLSHIP__LAST_STEP) return 1;
    if (rlship__enter(w)) {
        char what[120];
        snprintf(what, sizeof what, "step %" PRId64 " is not in 0..2^53-1; the call is left out", step);
        rlship__tell(w, RLSHIP__STEP, where, what);
        w->dropped_ever++;
        rlship__leave(w);
    }
    return 0;
}

/* Note a call for this step, and report one that does not follow what came before. */
static void rlship__reach(rlship *w, const char *where, int64_t step) {
    char what[300];
    int64_t newest;
    if (step < 0 || !rlship__enter(w)) return;
    newest = w->logged > w->at ? w->logged : w->at;
    if (*where == 'l') {
        if (w->promised && step + 1 == w->promised && w->at == w->promised + 1 && w->logged <= w->promised) {
            snprintf(what, sizeof what,
                     "log(\xe2\x80\xa6, step=%" PRId64 ") comes right after barrier(%" PRId64 "): nothing is lost, but a row of "
                     "a step may appear without it and be revised later. Call barrier once nothing more of its step will come",
                     step, step);
            rlship__tell(w, RLSHIP__AFTER, where, what);
        }
        if (w->at <= step) w->at = step + 1;
        w->logged = step + 1;
    } else if (*where == 'b') {
        if (step + 1 < w->promised) {
            snprintf(what, sizeof what,
                     "barrier(%" PRId64 ") goes back behind barrier(%" PRId64 "): call rollback(%" PRId64 ") first if the job "
                     "resumed from an older checkpoint",
                     step, w->promised - 1, step);
            rlship__tell(w, RLSHIP__BACK, where, what);
        }
        if (w->promised <= step) w->promised = step + 1;
        w->at = step + 2;
    } else {
        if (newest && newest < step) { /* the checkpoint of step n may be the one from which step n + 1 begins */
            snprintf(what, sizeof what,
                     "rollback(%" PRId64 ") goes forward: the step of this process is %" PRId64 ". It is carried out. A "
                     "rollback names the step of the checkpoint that the job went back to",
                     step, newest - 1);
            rlship__tell(w, RLSHIP__FORWARD, where, what);
        }
        w->promised = step;
        w->at = step + 1;
    }
    rlship__leave(w);
}

static int rlship__named(rlship *w, const char *where, const char *name) {
    size_t characters = 0;
    const char *s;
    for (s = name ? name : ""; *s; s++) characters += (*s & 0xC0) != 0x80;
    if (characters && characters <= RLSHIP__NAME) return 1;
    rlship__refuse(w, RLSHIP__BAD_NAME, where, "a name has %zu characters, 1 to %d are allowed; it is left out", characters,
                   RLSHIP__NAME);
    return 0;
}

/* `{"step":12,"kind":"span","t":…`: the step comes first, see rlship__count_lines. */
static void rlship__head(rlship__text *line, int64_t step, const char *kind, double t) {
    rlship__adds(line, "{");
    if (step >= 0) rlship__addf(line, "\"step\":%" PRId64 ",", step);
    if (kind) rlship__addf(line, "\"kind\":\"%s\",", kind);
    rlship__time(line, t);
}

/* --- metrics --- */

static void rlship__metrics_head(rlship__text *line, int64_t step, double t) {
    rlship__head(line, step, NULL, t);
    rlship__adds(line, ",\"m\":{");
}

/* Whether a hash is among those; if not it is from now on. */
static int rlship__seen(rlship__text *hashes, uint64_t hash) {
    size_t i;
    for (i = 0; i < hashes->size; i += sizeof hash)
        if (!memcmp(hashes->data + i, &hash, sizeof hash)) return 1;
    rlship__add(hashes, (const char *)&hash, sizeof hash);
    return 0;
}

/* A key and its value, in this line or, where it is full or has this key already, in the next. `empty` is what the line
 * has without metrics, `key` the bytes of the pair that are its key, `keys` the hashes of those in the line. */
static void rlship__pair(rlship *w, rlship__text *line, size_t empty, int64_t step, double t, rlship__text *pair,
                         size_t key, rlship__text *keys) {
    uint64_t hash = rlship__hash(pair->data, pair->broken ? 0 : key);
    int again = rlship__seen(keys, hash);
    if ((again || line->size + pair->size + 4 > RLSHIP__LINE) && line->size > empty) {
        rlship__adds(line, "}}\n");
        rlship__give(w, line, step, 0);
        rlship__metrics_head(line, step, t);
        keys->size = 0;
        rlship__seen(keys, hash);
    }
    if (line->size > empty) rlship__adds(line, ",");
    rlship__add(line, pair->data, pair->size);
    line->broken |= pair->broken;
    pair->size = 0;
}

static void rlship__log(rlship *w, int64_t step, const rlship_metric *metrics, size_t count, const double *weight) {
    rlship__text line = {NULL, 0, 0, 0}, pair = {NULL, 0, 0, 0}, keys = {NULL, 0, 0, 0};
    double t = rlship__now();
    int saved = errno, good = 1;
    size_t i, empty, key;
    if (!w || !rlship__step(w, "log", step, 0)) return;
    rlship__reach(w, "log", step);
    if (weight && !rlship__weight(*weight)) {
        rlship__refuse(w, RLSHIP__WEIGHT, "log", "a weight is negative or not finite; its values are left out");
        good = 0;
    }
    rlship__metrics_head(&line, step, t);
    empty = line.size;
    for (i = 0; i < count && good; i++) {
        if (!rlship__named(w, "log", metrics[i].name)) continue;
        rlship__string(&pair, metrics[i].name, RLSHIP__LINE, NULL);
        key = pair.size;
        rlship__adds(&pair, weight ? ":{\"v\":[" : ":");
        rlship__double(&pair, metrics[i].value);
        if (weight) {
            rlship__adds(&pair, "],\"w\":[");
            rlship__double(&pair, *weight);
            rlship__adds(&pair, "]}");
        }
        rlship__pair(w, &line, empty, step, t, &pair, key, &keys);
    }
    rlship__adds(&line, "}}\n");
    rlship__give(w, &line, step, 0);
    rlship__free(&pair);
    rlship__free(&keys);
    errno = saved;
}

void rlship_log_metrics(rlship *w, int64_t step, const rlship_metric *metrics, size_t count) {
    rlship__log(w, step, metrics, count, NULL);
}

void rlship_log_weighted(rlship *w, int64_t step, const rlship_metric *metrics, size_t count, double weight) {
    rlship__log(w, step, metrics, count, &weight);
}

void rlship_log(rlship *w, int64_t step, const char *name, double value) {
    rlship_metric metric;
    metric.name = name;
    metric.value = value;
    rlship__log(w, step, &metric, 1, NULL);
}

void rlship_log_list(rlship *w, int64_t step, const char *name, const double *values, const double *weights,
                     size_t count) {
    enum { AT_ONCE = 16384 }; /* of 25 bytes at most, and a weight as long: less than a line */
    double t = rlship__now();
    int saved = errno, good = 1;
    size_t i, from = 0;
    if (!w || !rlship__step(w, "log", step, 0)) return;
    rlship__reach(w, "log", step);
    if (count > RLSHIP__LIST) {
        rlship__refuse(w, RLSHIP__VALUE, "log", "a list has %zu values, %d are allowed; it is left out", count, RLSHIP__LIST);
        good = 0;
    }
    for (i = 0; weights && good && i < count; i++) {
        if (rlship__weight(weights[i])) continue;
        rlship__refuse(w, RLSHIP__WEIGHT, "log", "a weight is negative or not finite; its values are left out");
        good = 0;
    }
    good = good && rlship__named(w, "log", name);
    do {
        rlship__text line = {NULL, 0, 0, 0};
        size_t to = count - from < AT_ONCE ? count : from + AT_ONCE;
        rlship__metrics_head(&line, step, t);
        if (good) {
            rlship__string(&line, name, RLSHIP__LINE, NULL);
            rlship__adds(&line, weights ? ":{\"v\":[" : ":[");
            for (i = from; i < to; i++) {
                if (i > from) rlship__add(&line, ",", 1);
                rlship__double(&line, values[i]);
            }
            if (weights) rlship__adds(&line, "],\"w\":[");
            for (i = from; weights && i < to; i++) {
                if (i > from) rlship__add(&line, ",", 1);
                rlship__double(&line, weights[i]);
            }
            rlship__adds(&line, weights ? "]}" : "]");
        }
        rlship__adds(&line, "}}\n");
        rlship__give(w, &line, step, 0);
        from = to;
    } while (good && from < count);
    errno = saved;
}

/* Keep the entry for files and lines to come. With the lock held. */
static void rlship__remember(rlship *w, const char *metric, const rlship__text *line) {
    rlship__entry **at = &w->defined, *entry;
    char *copy;
    while (*at && strcmp((*at)->name, metric)) at = &(*at)->next;
    if (w->defined_size + line->size > RLSHIP__RESERVE / 2 || !(copy = (char *)malloc(line->size))) return;
    memcpy(copy, line->data, line->size);
    entry = *at;
    if (!entry) {
        entry = (rlship__entry *)calloc(1, sizeof *entry);
        if (entry) entry->name = strdup(metric);
        if (!entry || !entry->name) {
            free(entry);
            free(copy);
            return;
        }
        *at = entry;
    }
    w->defined_size += line->size - entry->size;
    free(entry->line);
    entry->line = copy;
    entry->size = line->size;
}

void rlship_define(rlship *w, const char *metric, const char *reduce, const char *unit, unsigned flags) {
    rlship__text line = {NULL, 0, 0, 0};
    const char *comma = "";
    int saved = errno;
    if (!w || !rlship__named(w, "define", metric)) return;
    rlship__adds(&line, "{\"kind\":\"define\",\"m\":{");
    rlship__string(&line, metric, RLSHIP__LINE, NULL);
    rlship__adds(&line, ":{");
    if (reduce && *reduce) {
        int several = strchr(reduce, ',') != NULL;
        rlship__adds(&line, several ? "\"reduce\":[" : "\"reduce\":");
        while (*reduce) {
            size_t size = strcspn(reduce, ",");
            char name[128];
            snprintf(name, sizeof name, "%.*s", (int)(size < sizeof name ? size : sizeof name - 1), reduce);
            rlship__adds(&line, comma);
            rlship__string(&line, name, sizeof name * 6, NULL);
            reduce += size + (reduce[size] == ',');
            comma = ",";
        }
        if (several) rlship__adds(&line, "]");
    }
    if (unit && *unit) {
        rlship__adds(&line, comma);
        rlship__adds(&line, "\"unit\":");
        rlship__string(&line, unit, 4096, NULL);
        comma = ",";
    }
    if (flags & RLSHIP_PER_RANK) {
        rlship__adds(&line, comma);
        rlship__adds(&line, "\"per_rank\":true");
        comma = ",";
    }
    if (flags & RLSHIP_STREAM) {
        rlship__adds(&line, comma);
        rlship__adds(&line, "\"stream\":true");
    }
    rlship__adds(&line, "}}}\n");
    if (!line.broken && rlship__enter(w)) {
        rlship__remember(w, metric, &line);
        rlship__leave(w);
    }
    rlship__give(w, &line, -1, 1);
    errno = saved;
}

/* --- spans, events, samples --- */

static void rlship__span(rlship *w, int64_t step, const char *name, double t, double seconds, const char *error) {
    rlship__text line = {NULL, 0, 0, 0};
    int saved = errno;
    if (!w || !rlship__step(w, "span", step, 0)) return;
    if (rlship__bits(seconds) << 1 > UINT64_C(0x7FF) << 53 || seconds < 0) seconds = 0; /* NaN too */
    if (seconds > 1e9) seconds = 1e9;
    rlship__head(&line, step, "span", t);
    rlship__adds(&line, ",\"dur\":");
    rlship__double(&line, seconds);
    rlship__adds(&line, ",\"name\":");
    rlship__string(&line, name && *name ? name : "unnamed", 500, NULL);
    if (pthread_equal(w->opener, pthread_self()))
        rlship__adds(&line, ",\"lane\":\"main\"");
    else
        rlship__addf(&line, ",\"lane\":\"thread-%" PRIx64 "\"", (uint64_t)(uintptr_t)pthread_self());
    if (error && *error) {
        rlship__adds(&line, ",\"err\":");
        rlship__string(&line, error, 1000, NULL);
    }
    rlship__adds(&line, "}\n");
    rlship__give(w, &line, step, 0);
    errno = saved;
}

rlship_span rlship_span_begin(rlship *w, const char *name) {
    rlship_span span;
    span.writer = w;
    span.name = name;
    span.t = rlship__now();
    span.began = rlship__ticks();
    return span;
}

void rlship_span_end(const rlship_span *span, int64_t step, const char *error) {
    rlship__span(span->writer, step, span->name, span->t, rlship__ticks() - span->began, error);
}

void rlship_span_add(rlship *w, int64_t step, const char *name, double seconds, const char *error) {
    rlship__span(w, step, name, rlship__now() - (seconds > 0 && seconds < 1e9 ? seconds : 0), seconds, error);
}

static rlship_attr rlship__attr(const char *name, char kind, const char *text, double number) {
    rlship_attr attr;
    attr.name = name;
    attr.kind = kind;
    attr.text = text ? text : kind == 'j' ? "null" : "";
    attr.number = number;
    return attr;
}

rlship_attr rlship_text(const char *name, const char *value) { return rlship__attr(name, 's', value, 0); }
rlship_attr rlship_number(const char *name, double value) { return rlship__attr(name, 'n', NULL, value); }
rlship_attr rlship_bool(const char *name, int value) { return rlship__attr(name, 'b', NULL, value != 0); }
rlship_attr rlship_json(const char *name, const char *value) { return rlship__attr(name, 'j', value, 0); }

/* How many elements the outermost array or object of a JSON text has; of another text its characters. */
static int64_t rlship__elements(const char *json) {
    int64_t count = 0, characters = 0;
    int depth = 0, quoted = 0, something = 0;
    for (; *json; json++) {
        characters += (*json & 0xC0) != 0x80;
        if (quoted) {
            if (*json == '\\' && json[1])
                json++, characters++;
            else if (*json == '"')
                quoted = 0;
            continue;
        }
        if (depth && !strchr(" \t\r\n]}", *json)) something = 1;
        if (*json == '"') quoted = 1;
        if (*json == '[' || *json == '{') depth++;
        if (*json == ']' || *json == '}') depth--;
        if (*json == ',' && depth == 1) count++;
    }
    return something ? count + 1 : characters;
}

/* A value of at most `most` bytes; 1 where it had to be cut, and then `*length` is what it had. */
static int rlship__value(rlship__text *text, const rlship_attr *attr, size_t most, int64_t *length) {
    size_t before = text->size;
    const char *s;
    if (attr->kind == 'n') {
        rlship__double(text, attr->number);
    } else if (attr->kind == 'b') {
        rlship__adds(text, attr->number != 0 ? "true" : "false");
    } else if (attr->kind == 'j' && strlen(attr->text) <= most) {
        rlship__adds(text, attr->text);
        for (s = attr->text; !text->broken && *s; s++) /* between tokens only, if it is JSON */
            if (*s == '\n' || *s == '\r') text->data[before + (size_t)(s - attr->text)] = ' ';
    } else {
        rlship__string(text, attr->text, most, length);
        if (attr->kind == 'j') {
            *length = rlship__elements(attr->text);
            return 1;
        }
    }
    return 0;
}

/* The size of an object whose members have these sizes, if those above `most` are cut, with what tells of the cuts. */
static size_t rlship__object_size(const size_t *keys, const size_t *sizes, size_t count, size_t most) {
    size_t i, all = 2;
    for (i = 0; i < count; i++) {
        if (!keys[i]) continue; /* left out */
        all += keys[i] + 2 + (sizes[i] < most ? sizes[i] : most);
        if (sizes[i] > most) all += keys[i] + 32;
    }
    return all;
}

/* `{"a":1,…}` in at most `room` bytes, the longest members shortened, of one name the last; `cut` gets `"a":12,…`, the lengths they had. */
static void rlship__object(rlship *w, rlship__text *line, const rlship_attr *attrs, size_t count, size_t room,
                           rlship__text *cut) {
    rlship__text probe = {NULL, 0, 0, 0};
    size_t *sizes = (size_t *)calloc(count + 1, 2 * sizeof(size_t)), *keys = sizes ? sizes + count + 1 : NULL;
    uint64_t *hashes = (uint64_t *)calloc(count + 1, sizeof(uint64_t));
    size_t most = room, least = 16, i, j;
    int64_t length;
    const char *comma = "";
    if (!sizes || !hashes) {
        free(sizes);
        free(hashes);
        line->broken = 1;
        return;
    }
    for (i = 0; i < count; i++) {
        if (!rlship__named(w, "event", attrs[i].name)) continue;
        probe.size = 0;
        rlship__string(&probe, attrs[i].name, RLSHIP__LINE, NULL);
        keys[i] = probe.size;
        hashes[i] = rlship__hash(probe.data, probe.broken ? 0 : probe.size);
        for (j = 0; j < i; j++)
            if (hashes[j] == hashes[i]) keys[j] = 0;
        probe.size = 0;
        rlship__value(&probe, &attrs[i], SIZE_MAX, &length);
        sizes[i] = probe.size;
    }
    line->broken |= probe.broken;
    rlship__free(&probe);
    if (rlship__object_size(keys, sizes, count, most) > room) {
        while (most - least > 16) {
            size_t middle = least + (most - least) / 2;
            if (rlship__object_size(keys, sizes, count, middle) > room)
                most = middle;
            else
                least = middle;
        }
        most = least;
        line->broken |= rlship__object_size(keys, sizes, count, most) > room; /* too many members */
    }
    rlship__adds(line, "{");
    for (i = 0; i < count; i++) {
        if (!keys[i]) continue;
        rlship__adds(line, comma);
        comma = ",";
        rlship__string(line, attrs[i].name, RLSHIP__LINE, NULL);
        rlship__adds(line, ":");
        if (sizes[i] <= most) {
            rlship__value(line, &attrs[i], SIZE_MAX, &length);
            continue;
        }
        rlship__value(line, &attrs[i], most, &length);
        if (cut->size) rlship__adds(cut, ",");
        rlship__string(cut, attrs[i].name, RLSHIP__LINE, NULL);
        rlship__addf(cut, ":%" PRId64, length);
    }
    rlship__adds(line, "}");
    free(sizes);
    free(hashes);
}

/* The last member of a record, an object, and what was cut in it. */
static void rlship__finish(rlship *w, rlship__text *line, const char *member, const rlship_attr *attrs, size_t count) {
    rlship__text cut = {NULL, 0, 0, 0};
    rlship__addf(line, ",\"%s\":", member);
    rlship__object(w, line, attrs, count, line->size < RLSHIP__LINE / 2 ? RLSHIP__LINE - line->size - 64 : 0, &cut);
    if (cut.size) {
        rlship__adds(line, ",\"cut\":{");
        rlship__add(line, cut.data, cut.size);
        rlship__adds(line, "}");
    }
    line->broken |= cut.broken;
    rlship__adds(line, "}\n");
    rlship__free(&cut);
}

void rlship_event(rlship *w, int64_t step, const char *name, const rlship_attr *attrs, size_t count) {
    rlship__text line = {NULL, 0, 0, 0};
    int saved = errno;
    if (!w || !rlship__step(w, "event", step, 0) || !rlship__named(w, "event", name)) return;
    rlship__head(&line, step, "event", rlship__now());
    rlship__adds(&line, ",\"name\":");
    rlship__string(&line, name, RLSHIP__LINE, NULL);
    rlship__finish(w, &line, "attrs", attrs, count);
    rlship__give(w, &line, step, 0);
    errno = saved;
}

void rlship_sample(rlship *w, int64_t step, const char *table, const double *score, const rlship_attr *row,
                   size_t count) {
    rlship__text line = {NULL, 0, 0, 0};
    int saved = errno;
    if (!w || !rlship__step(w, "sample", step, 0) || !rlship__named(w, "sample", table)) return;
    rlship__head(&line, step, "sample", rlship__now());
    rlship__adds(&line, ",\"table\":");
    rlship__string(&line, table, RLSHIP__LINE, NULL);
    if (score) {
        rlship__adds(&line, ",\"score\":");
        rlship__double(&line, *score);
    }
    rlship__adds(&line, ",\"pri\":");
    rlship__double(&line, (double)(rlship__random() >> 11) * (1.0 / 9007199254740992.0));
    rlship__finish(w, &line, "row", row, count);
    rlship__give(w, &line, step, 0);
    errno = saved;
}

/* --- the ledger --- */

static uint32_t rlship__crcs[256];
static pthread_once_t rlship__crcs_once = PTHREAD_ONCE_INIT;

static void rlship__make_crcs(void) {
    uint32_t byte, bit, crc;
    for (byte = 0; byte < 256; byte++) {
        for (crc = byte, bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ UINT32_C(0xEDB88320) : crc >> 1;
        rlship__crcs[byte] = crc;
    }
}

/* CRC-32, going on from that of the bytes before. */
static uint32_t rlship__crc(uint32_t before, const void *data, size_t size) {
    const unsigned char *byte = (const unsigned char *)data;
    uint32_t crc = ~before;
    pthread_once(&rlship__crcs_once, rlship__make_crcs);
    while (size--) crc = rlship__crcs[(crc ^ *byte++) & 255] ^ crc >> 8;
    return ~crc;
}

static uint32_t rlship__crc_of(uint32_t before, uint64_t value, int bytes) {
    unsigned char data[8];
    int i;
    for (i = 0; i < bytes; i++) data[i] = (unsigned char)(value >> 8 * i);
    return rlship__crc(before, data, (size_t)bytes);
}

static uint64_t rlship__mix(uint64_t x) {
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

/* The share of the environment, written with a point whatever the locale; 1/8 for any other text. */
static double rlship__share(void) {
    const char *s = getenv("RLSHIP_LEDGER_SHARE");
    double share = 0, digit = 1;
    if (!s || !*s) return 0.125;
    for (; *s >= '0' && *s <= '9'; s++) share = share * 10 + (*s - '0');
    if (*s == '.')
        for (s++; *s >= '0' && *s <= '9'; s++) share += (*s - '0') * (digit /= 10);
    return *s || share > 1 ? 0.125 : share;
}

static uint32_t rlship__crc_of_integers(const rlship_group *group, int64_t at, int64_t count) {
    uint32_t crc = 0;
    int64_t i;
    int bytes = 4;
    for (i = at; !group->tokens && i < at + count; i++)
        if (group->tokens64[i] < INT32_MIN || group->tokens64[i] > INT32_MAX) bytes = 8;
    for (i = at; i < at + count; i++)
        crc = rlship__crc_of(crc, (uint64_t)(group->tokens ? (int64_t)group->tokens[i] : group->tokens64[i]), bytes);
    return crc;
}

/* A number rounded to float32, or to bfloat16: one NaN, and no negative zero. */
static uint32_t rlship__crc_of_number(double x, int bf16) {
    float single = (float)x;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    if (!rlship__finite(x) && rlship__bits(x) << 12)
        bits = UINT32_C(0x7FC00000);
    else if (bf16)
        bits += 0x7FFF + (bits >> 16 & 1);
    if (bf16) return rlship__crc_of(0, bits >> 16 == 0x8000 ? 0 : bits >> 16, 2);
    return rlship__crc_of(0, bits << 1 ? bits : 0, 4);
}

static void rlship__digest(rlship__text *line, const char *name, const uint32_t *ids, const uint32_t *values, int64_t n) {
    uint64_t low = 0, high = 0;
    int64_t i;
    for (i = 0; i < n; i++) {
        uint64_t h = rlship__mix((uint64_t)ids[i] << 32 | rlship__crc(values[i], name, strlen(name)));
        low += h & UINT32_MAX;
        high += h >> 32;
    }
    if (line->data[line->size - 1] != '{') rlship__adds(line, ",");
    rlship__addf(line, "\"%s\":[%" PRIu64 ",%" PRIu64 "]", name, low, high);
}

/* The sum of (a - mean) * b, or of a; what additions lose is held in a second sum. */
static double rlship__sum(const double *a, const double *b, double mean, int64_t n) {
    volatile double total = 0, lost = 0, next;
    int64_t i;
    for (i = 0; i < n; i++) {
        double x = b ? (a[i] - mean) * b[i] : a[i];
        next = total + x;
        if ((total < 0 ? -total : total) >= (x < 0 ? -x : x))
            lost = lost + ((total - next) + x);
        else
            lost = lost + ((x - next) + total);
        total = next;
    }
    return total + lost;
}

static void rlship__sums(rlship__text *line, const rlship_group *group) {
    const double *r = group->reward, *a = group->advantage;
    int64_t n = group->n;
    int finite = r && rlship__finite(rlship__sum(r, r, 0, n));
    if (finite) {
        rlship__adds(line, ",\"reward\":[");
        rlship__double(line, rlship__sum(r, NULL, 0, n));
        rlship__adds(line, ",");
        rlship__double(line, rlship__sum(r, r, 0, n));
        rlship__adds(line, "]");
    }
    if (a && rlship__finite(rlship__sum(a, a, 0, n))) {
        rlship__adds(line, ",\"advantage\":[");
        rlship__double(line, rlship__sum(a, NULL, 0, n));
        rlship__adds(line, ",");
        rlship__double(line, rlship__sum(a, a, 0, n));
        if (finite && n) {
            rlship__adds(line, ",");
            rlship__double(line, rlship__sum(r, a, rlship__sum(r, NULL, 0, n) / (double)n, n));
        }
        rlship__adds(line, "]");
    }
    if (group->mask) {
        int64_t i, j, at = 0, counted = 0, empty = 0;
        for (i = 0; i < n; at += group->lengths[i++]) {
            int64_t own = 0;
            for (j = at; j < at + group->lengths[i]; j++) own += group->mask[j] != 0;
            counted += own;
            empty += !own;
        }
        rlship__addf(line, ",\"mask\":[%" PRId64 ",%" PRId64 ",%" PRId64 "]", counted, at, empty);
    }
}

/* The digests; `ids` and `values` have room for each sample. */
static void rlship__digests(rlship__text *line, const rlship_group *group, uint32_t *ids, uint32_t *values) {
    int tokens = group->tokens || group->tokens64;
    int64_t i, j, at, n = group->n;
    if (group->sample || tokens) rlship__addf(line, ",\"by\":\"%s\"", group->sample ? "sample" : "tokens");
    rlship__adds(line, ",\"d\":{");
    for (at = i = 0; i < n; i++) {
        ids[i] = group->sample ? rlship__crc(0, group->sample[i], strlen(group->sample[i])) : 0;
        if (!tokens) continue;
        values[i] = rlship__crc_of_integers(group, at, group->lengths[i]);
        at += group->lengths[i];
        if (!group->sample) ids[i] = values[i];
    }
    if (group->sample) rlship__digest(line, "sample", ids, ids, n);
    if (tokens) rlship__digest(line, "tokens", ids, values, n);
    if (group->mask) {
        for (at = i = 0; i < n; at += group->lengths[i++])
            for (values[i] = 0, j = at; j < at + group->lengths[i]; j++)
                values[i] = rlship__crc_of(values[i], group->mask[j] != 0, 1);
        rlship__digest(line, "mask", ids, values, n);
    }
    for (i = 0; group->reward && i < n; i++) values[i] = rlship__crc_of_number(group->reward[i], group->bf16);
    if (group->reward) rlship__digest(line, "reward", ids, values, n);
    for (i = 0; group->advantage && i < n; i++) values[i] = rlship__crc_of_number(group->advantage[i], group->bf16);
    if (group->advantage) rlship__digest(line, "advantage", ids, values, n);
    rlship__adds(line, group->bf16 ? "},\"precision\":\"bf16\"" : "}");
}

static void rlship__entry_head(rlship__text *line, int64_t step, const char *hop, const char *key, int64_t n) {
    rlship__head(line, step, "ledger", rlship__now());
    rlship__adds(line, ",\"hop\":");
    rlship__string(line, hop, RLSHIP__LINE, NULL);
    rlship__adds(line, ",\"key\":");
    rlship__string(line, key, RLSHIP__LINE, NULL);
    rlship__addf(line, ",\"n\":%" PRId64, n);
}

static const char *rlship__wrong_group(const char *key, const rlship_group *group) {
    size_t characters = 0;
    const char *s;
    int64_t i;
    for (s = key ? key : ""; *s; s++) characters += (*s & 0xC0) != 0x80;
    if (!characters || characters > 200) return "a key has 1 to 200 characters";
    if (group->n < 0 || group->n > 1 << 21) return "a group has 0 to 2097152 samples";
    if ((group->tokens || group->tokens64 || group->mask) && !group->lengths && group->n) return "lengths are needed";
    for (i = 0; group->lengths && i < group->n; i++)
        if (group->lengths[i] < 0) return "a length is less than 0";
    if (group->version && (group->version[0] < 0 || group->version[1] < group->version[0])) return "a version is not in order";
    if (group->part && (group->part[0] < 0 || group->part[1] <= group->part[0])) return "a part is not i of k with i < k";
    if ((group->response && *group->response < 0) || group->retry < 0 || group->passes < 0) return "a count is less than 0";
    return NULL;
}

void rlship_ledger(rlship *w, int64_t step, const char *hop, const char *key, const rlship_group *group) {
    rlship__text line = {NULL, 0, 0, 0};
    const char *wrong;
    uint32_t *room;
    int saved = errno;
    if (!w || !rlship__step(w, "ledger", step, 0) || !rlship__named(w, "ledger", hop)) return;
    wrong = rlship__wrong_group(key, group);
    if (wrong) {
        rlship__refuse(w, RLSHIP__BAD_NAME, "ledger", "%s; it is left out", wrong);
        return;
    }
    if ((double)(rlship__mix(rlship__crc(0, key, strlen(key))) >> 11) >= rlship__share() * 9007199254740992.0) return;
    rlship__entry_head(&line, step, hop, key, group->n);
    room = (uint32_t *)malloc(((size_t)group->n * 2 + 1) * sizeof *room);
    line.broken |= !room;
    if (room && (group->sample || group->tokens || group->tokens64 || group->mask || group->reward || group->advantage))
        rlship__digests(&line, group, room, room + group->n);
    free(room);
    rlship__sums(&line, group);
    if (group->version)
        rlship__addf(&line, ",\"version\":[%" PRId64 ",%" PRId64 "]", group->version[0], group->version[1]);
    if (group->response) rlship__addf(&line, ",\"response\":%" PRId64, *group->response);
    if (group->part) rlship__addf(&line, ",\"part\":[%" PRId64 ",%" PRId64 "]", group->part[0], group->part[1]);
    if (group->retry) rlship__addf(&line, ",\"try\":%" PRId64, group->retry);
    if (group->passes) rlship__addf(&line, ",\"passes\":%" PRId64, group->passes);
    if (group->why) {
        rlship__adds(&line, ",\"why\":");
        rlship__string(&line, group->why, 800, NULL);
    }
    rlship__adds(&line, "}\n");
    rlship__give(w, &line, step, 0);
    errno = saved;
}

void rlship_weights(rlship *w, int64_t step, int64_t version, const char *fingerprint) {
    rlship__text line = {NULL, 0, 0, 0};
    char key[24];
    int saved = errno;
    if (!w || !rlship__step(w, "weights", step, 0)) return;
    if (version < 0 || version > RLSHIP__LAST_STEP) {
        rlship__refuse(w, RLSHIP__BAD_NAME, "weights", "version %" PRId64 " is not in 0..2^53-1; it is left out", version);
        return;
    }
    snprintf(key, sizeof key, "%" PRId64, version);
    rlship__entry_head(&line, step, "weights", key, 0);
    rlship__addf(&line, ",\"version\":[%" PRId64 ",%" PRId64 "]", version, version);
    if (fingerprint && *fingerprint) {
        rlship__adds(&line, ",\"fingerprint\":");
        rlship__string(&line, fingerprint, 200, NULL);
    }
    rlship__adds(&line, "}\n");
    rlship__give(w, &line, step, 0);
    errno = saved;
}

/* --- the run --- */

static int rlship__among(const char *word, const char *const *list) {
    for (; *list; list++)
        if (!strcmp(word, *list)) return 1;
    return 0;
}

/* Whether a word that nothing divides ends like the name of a secret: `dbpassword`. */
static int rlship__ends_secret(const char *word) {
    static const char *const ends[] = {"password", "passwd", "passphrase", "secret", "secretkey", "apikey"};
    size_t i, size = strlen(word);
    for (i = 0; i < sizeof ends / sizeof *ends; i++)
        if (size >= strlen(ends[i]) && !strcmp(word + size - strlen(ends[i]), ends[i])) return 1;
    return 0;
}

/* What a name says of the texts below it: 1 that they are secrets, 2 that they may be tokens. */
static int rlship__hint(const char *name) {
    static const char *const secret[] = {"password",  "passwords",  "passwd",        "passphrase", "secret",
                                         "secrets",   "credential", "credentials",   "apikey",     "apikeys",
                                         "accesskey", "privatekey", "authorization", "bearer",     NULL};
    /* What may be kept under a key, and whose key it is. */
    static const char *const before_key[] = {
        "api",        "access",    "private",    "auth",     "signing", "encryption", "ssh",      "gpg",    "pgp",
        "rsa",        "tls",       "ssl",        "master",   "deploy",  "openai",     "gemini",   "google", "mistral",
        "cohere",     "groq",      "deepseek",   "openrouter", "replicate", "wandb",  "hf",       "huggingface", "comet",
        "neptune",    "github",    "gitlab",     "aws",      "azure",   "gcp",        "stripe",   "tavily", "serper",
        "pinecone",   "langsmith", NULL};
    static const char *const key[] = {"key", "keys", NULL};
    static const char *const accounts[] = {"db",    "database", "sql",  "mysql", "pg",    "postgres", "mongo", "redis",
                                           "amqp",  "rabbitmq", "smtp", "mail",  "email", "ftp",      "ssh",   "http",
                                           "https", "proxy",    "admin", "root", "user",  "login",    "auth",  "ldap",
                                           "sudo",  NULL};
    static const char *const pass[] = {"pass", "pwd", NULL};
    static const char *const forges[] = {"github", "gh", "gitlab", "git", "azure", "ado", "devops", NULL};
    char word[64], last[64] = "";
    size_t size = 0;
    int was_upper = 0;
    for (;; name++) {
        unsigned char c = (unsigned char)*name;
        int upper = c >= 'A' && c <= 'Z', after_lower = c && name[1] >= 'a' && name[1] <= 'z';
        int letter = upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c >= 0x80;
        if (size && (!letter || (upper && (!was_upper || after_lower)))) {
            word[size] = 0;
            if (rlship__among(word, secret) || rlship__ends_secret(word)) return 1;
            if (rlship__among(word, key) && rlship__among(last, before_key)) return 1;
            if (rlship__among(word, pass) && rlship__among(last, accounts)) return 1;
            if (!strcmp(word, "pat") && rlship__among(last, forges)) return 1;
            if (!strcmp(word, "word") && !strcmp(last, "pass")) return 1;
            memcpy(last, word, size + 1);
            size = 0;
        }
        if (!c) break;
        if (letter && size < sizeof word - 1) word[size++] = (char)(upper ? c + ('a' - 'A') : c);
        was_upper = upper;
    }
    return strcmp(last, "token") ? 0 : 2;
}

static int rlship__blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Whether a character stands between the words of a text; the end of the text does. */
static int rlship__between(char c) { return !c || rlship__blank(c) || strchr("\"'`,;:=()[]{}<>|&?", c) != NULL; }

/* Whether the text from `s` to `end` may be a token: not a special one of a tokenizer, in brackets. */
static int rlship__is_token(const char *s, const char *end) {
    size_t characters = 0;
    const char *at;
    if ((*s == '<' && end[-1] == '>') || (*s == '[' && end[-1] == ']')) return 0;
    for (at = s; at < end; at++) {
        if (rlship__blank(*at)) return 0;
        characters += (*at & 0xC0) != 0x80;
    }
    return characters >= RLSHIP__SECRET;
}

/* The length of the prefix of a known kind of key that a text begins with. `always`: of those that begin no words. */
static size_t rlship__prefix(const char *s, int always) {
    static const char *const prefixes[] = {
        "hf_",   "sk-",   "ghp_",      "gho_",      "ghu_",     "ghs_",     "ghr_", "github_pat_", "glpat-", "nvapi-",
        "xoxb-", "xoxp-", "wandb_v1_", "dckr_pat_", "sk_live_", "rk_live_", "gsk_", "AKIA",        "ASIA",   "AIza",
        "eyJ",   "pypi-AgE", "npm_"};
    size_t i;
    for (i = 0; i < (always ? 16 : sizeof prefixes / sizeof *prefixes); i++)
        if (!strncmp(s, prefixes[i], strlen(prefixes[i]))) return strlen(prefixes[i]);
    return 0;
}

/* Whether an address has a password: user:password@host, where `s` follows its "://", or a token: https://token@host. */
static int rlship__has_password(const char *text, const char *s) {
    const char *at = NULL, *colon, *end, *user = s;
    int of_web = (s - text >= 7 && !strncmp(s - 7, "http", 4)) || (s - text >= 8 && !strncmp(s - 8, "https", 5));
    for (end = s; *end && *end != '/'; end++)
        if (*end == '@') at = end;
    colon = at ? (const char *)memchr(s, ':', (size_t)(at - s)) : NULL;
    for (; at && s < at; s++)
        if (rlship__blank(*s)) return 0;
    return (colon && colon + 1 < at) || (at && of_web && at - user >= RLSHIP__SECRET);
}

/* Whether a text begins with a word of lower case, in any case. */
static int rlship__begins(const char *s, const char *word) {
    for (; *word; s++, word++)
        if ((*s >= 'A' && *s <= 'Z' ? *s + ('a' - 'A') : *s) != *word) return 0;
    return 1;
}

/* Whether a text has a header such as `Authorization: Bearer x`. */
static int rlship__authorizes(const char *text) {
    const char *s, *word;
    int named = 0, after = 0;
    for (s = text; *s && !named; s++) named = rlship__begins(s, "authorization");
    for (s = text; *s;) {
        while (*s && rlship__between(*s)) s++;
        for (word = s; !rlship__between(*s);) s++;
        if (after && s > word && (named || s - word >= RLSHIP__SECRET)) return 1;
        after = s - word == 6 && rlship__begins(word, "bearer");
    }
    return 0;
}

/* Whether a text looks like a secret, or has a part that does. */
static int rlship__has_secret(const char *text) {
    const char *s, *end, *name = text;
    if (rlship__prefix(text, 1)) {
        for (s = text; *s && !rlship__blank(*s);) s++;
        if (!*s) return 1;
    }
    if (strstr(text, "hooks.slack.com/services/") || rlship__authorizes(text)) return 1;
    if (strstr(text, "-----BEGIN") && strstr(text, "PRIVATE KEY-----")) return 1;
    for (s = text; *s; s++) {
        if (!strncmp(s, "://", 3) && rlship__has_password(text, s + 3)) return 1;
        if (*s == '=' && s > name) {
            char word[256];
            size_t size = (size_t)(s - name);
            int hint;
            if (size > sizeof word - 1) size = sizeof word - 1;
            memcpy(word, s - size, size);
            word[size] = 0;
            hint = rlship__hint(word);
            for (end = s + 1; *end == '\'' || *end == '"';) end++;
            name = end;
            while (!rlship__between(*end)) end++;
            if (end > name && (hint == 1 || (hint == 2 && rlship__is_token(name, end)))) return 1;
        }
        if (rlship__between(*s)) {
            name = s + 1;
            continue;
        }
        if (s == name && rlship__prefix(s, 0)) { /* a word begins */
            int plain = !strncmp(s, "npm_", 4); /* `npm_config_...` is a setting */
            for (end = s + rlship__prefix(s, 0); !rlship__between(*end); end++)
                if (!((*end >= '0' && *end <= '9') || (*end >= 'a' && *end <= 'z') || (*end >= 'A' && *end <= 'Z') ||
                      (!plain && (*end == '_' || *end == '-' || *end == '.'))))
                    break;
            if (rlship__between(*end) && (size_t)(end - s) >= rlship__prefix(s, 0) + RLSHIP__SECRET) return 1;
        }
    }
    return 0;
}

static int rlship__is_secret(int hint, const char *text) {
    const char *s = text;
    while (rlship__blank(*s)) s++;
    if (hint == 1 && *s) return 1;
    return (hint == 2 && *text && rlship__is_token(text, text + strlen(text))) || rlship__has_secret(text);
}

/* Whether a text somewhere in a JSON text is a secret. `hint` is that of its name. */
static int rlship__json_secret(int hint, const char *json) {
    enum { DEEPEST = 64 };
    int hints[DEEPEST + 1], depth = 0, found = 0;
    char *text = (char *)malloc(strlen(json) + 1), *to;
    hints[0] = hint;
    for (; text && *json && !found; json++) {
        if ((*json == '{' || *json == '[') && depth < DEEPEST) {
            hints[depth + 1] = hints[depth];
            depth++;
        } else if ((*json == '}' || *json == ']') && depth) {
            depth--;
        } else if (*json == '"') {
            const char *next;
            for (to = text, json++; *json && *json != '"'; json++) {
                if (*json == '\\' && json[1]) json++;
                *to++ = *json;
            }
            *to = 0;
            if (!*json) break;
            for (next = json + 1; rlship__blank(*next);) next++;
            if (*next == ':')
                hints[depth] = depth && hints[depth - 1] == 1 ? 1 : rlship__hint(text);
            else
                found = rlship__is_secret(hints[depth], text);
        }
    }
    free(text);
    return found || !text;
}

/* Behind the JSON string at `s`, or NULL; the string roughly as a text, to be freed, in `text`. */
static const char *rlship__quoted(const char *s, char **text) {
    const char *end = s;
    char *to;
    *text = NULL;
    if (*s != '"') return NULL;
    for (end++; *end && *end != '"'; end++)
        if (*end == '\\' && end[1]) end++;
    if (!*end || !(*text = to = (char *)malloc((size_t)(end - s)))) return NULL;
    for (s++; s < end; s++) {
        if (*s == '\\') s++;
        *to++ = *s;
    }
    *to = 0;
    return end + 1;
}

/* Copy a JSON value without the strings that are secrets. Their paths, which begin with `path`, go to `dropped`.
 * 1: `*at` is behind it; 0: it is a secret itself; -1: it is no JSON, nested too deep, or there is no memory. */
static int rlship__without_secrets(const char **at, int hint, int depth, rlship__text *path, rlship__text *out,
                                   rlship__text *dropped) {
    const char *s = *at, *from;
    char *text;
    size_t length = path->size, kept = 0, n = 0;
    while (rlship__blank(*s)) s++;
    from = s;
    if (*s == '"') {
        int secret;
        if (!(s = rlship__quoted(s, &text))) return -1;
        secret = rlship__is_secret(hint, text);
        free(text);
        *at = s;
        if (!secret) rlship__add(out, from, (size_t)(s - from));
        if (secret && dropped->size < RLSHIP__SETTING) {
            rlship__adds(dropped, dropped->size ? ",\"" : "\"");
            rlship__add(dropped, path->data, path->size);
            rlship__adds(dropped, "\"");
        }
        return !secret;
    }
    if (*s == '{' || *s == '[') {
        int object = *s == '{';
        if (depth > 64) return -1;
        rlship__add(out, s++, 1);
        for (;; n++) {
            size_t before = out->size;
            int inner = hint, found;
            while (rlship__blank(*s)) s++;
            if (*s == (object ? '}' : ']')) break;
            if (n && *s++ != ',') return -1;
            while (rlship__blank(*s)) s++;
            if (kept) rlship__adds(out, ",");
            if (object) {
                from = s;
                if (!(s = rlship__quoted(s, &text))) return -1;
                if (hint != 1) inner = rlship__hint(text);
                free(text);
                rlship__add(out, from, (size_t)(s - from));
                rlship__adds(path, ".");
                rlship__add(path, from + 1, (size_t)(s - from) - 2);
                while (rlship__blank(*s)) s++;
                if (*s++ != ':') return -1;
                rlship__adds(out, ":");
            } else {
                rlship__addf(path, ".%zu", n);
            }
            found = rlship__without_secrets(&s, inner, depth + 1, path, out, dropped);
            path->size = length;
            if (found < 0) return -1;
            if (!found && object) out->size = before;
            if (!found && !object) rlship__adds(out, "\"***\"");
            kept += found || !object;
        }
        rlship__add(out, s++, 1);
    } else {
        while (*s && *s != ',' && *s != '}' && *s != ']' && !rlship__blank(*s)) s++;
        if (s == from) return -1;
        rlship__add(out, from, (size_t)(s - from));
    }
    *at = s;
    return 1;
}

/* A JSON attribute without its secrets, in `kept`; 0 where all of it has to go. */
static int rlship__cleaned(const char *object, const rlship_attr *attr, rlship__text *kept, rlship__text *all_dropped) {
    rlship__text name = {NULL, 0, 0, 0}, path = {NULL, 0, 0, 0}, dropped = {NULL, 0, 0, 0};
    const char *json = attr->text;
    int good;
    rlship__adds(&name, object);
    rlship__adds(&name, *object ? "." : "");
    rlship__adds(&name, attr->name);
    rlship__add(&name, "", 1);
    if (!name.broken) rlship__string(&path, name.data, 2000, NULL);
    if (path.size) path.size--; /* its last quote */
    if (path.size) memmove(path.data, path.data + 1, --path.size);
    kept->size = 0;
    good = rlship__without_secrets(&json, rlship__hint(attr->name), 0, &path, kept, &dropped) == 1;
    rlship__add(kept, "", 1);
    good = good && !(name.broken | path.broken | kept->broken | dropped.broken);
    if (good && dropped.size) {
        if (all_dropped->size) rlship__adds(all_dropped, ",");
        rlship__add(all_dropped, dropped.data, dropped.size);
    }
    rlship__free(&name);
    rlship__free(&path);
    rlship__free(&dropped);
    return good;
}

/* Keep the record for files and lines to come, behind those before it. One that says the same names, and no objects, takes
 * the place of the earlier. With the lock held. */
static void rlship__remember_run(rlship *w, rlship__text *names, const rlship__text *line) {
    rlship__entry **at = &w->ran, *entry;
    while ((entry = *at)) {
        if (names->size && !strcmp(entry->name, names->data)) {
            *at = entry->next;
            w->ran_size -= entry->size;
            free(entry->name), free(entry->line), free(entry);
        } else {
            at = &entry->next;
        }
    }
    if (w->ran_size + line->size > 4 * RLSHIP__LINE) {
        rlship__tell(w, RLSHIP__SETTINGS, "run", "more than 4 MiB of the run's data: a file that is lost takes some with it");
        return;
    }
    entry = (rlship__entry *)calloc(1, sizeof *entry);
    if (!entry) return;
    entry->name = strdup(names->size ? names->data : "");
    entry->line = (char *)malloc(line->size);
    if (!entry->name || !entry->line) {
        free(entry->name), free(entry->line), free(entry);
        return;
    }
    memcpy(entry->line, line->data, line->size);
    entry->size = line->size;
    w->ran_size += entry->size;
    *at = entry;
}

/* What a `run` record is made of: its line so far, what says its names, the paths that were dropped. */
typedef struct {
    const char *object; /* "config", "summary" or "" */
    rlship__text line, names, dropped;
    int joins; /* it has an object, which is joined with an earlier one */
    size_t count;
} rlship__noted;

static void rlship__put_noted(rlship *w, rlship__noted *noted) {
    rlship__text *line = &noted->line;
    if (!noted->count && !noted->dropped.size) return;
    if (noted->count && *noted->object) rlship__adds(line, "}");
    if (noted->dropped.size) {
        rlship__adds(line, ",\"dropped\":[");
        rlship__add(line, noted->dropped.data, noted->dropped.size);
        rlship__adds(line, "]");
    }
    rlship__adds(line, "}\n");
    if (noted->joins) noted->names.size = 0;
    rlship__add(&noted->names, "", noted->names.size > 0);
    line->broken |= noted->names.broken | noted->dropped.broken;
    if (rlship__enter(w)) {
        uint64_t dropped = w->dropped_ever;
        if (line->broken) {
            rlship__tell(w, RLSHIP__MEMORY, "run", "no memory");
            rlship__drop(w, -1);
        } else {
            rlship__remember_run(w, &noted->names, line);
            rlship__append(w, line->data, line->size, -1, 1);
            if (w->dropped_ever != dropped) w->owed = 1;
        }
        rlship__leave(w);
    }
    line->size = noted->names.size = noted->dropped.size = noted->count = 0;
    noted->joins = 0;
}

static void rlship__begin_noted(rlship__noted *noted) {
    if (noted->line.size) return;
    rlship__adds(&noted->line, "{\"kind\":\"run\",");
    rlship__time(&noted->line, rlship__now());
}

/* 0, and reported, where a member of the record cannot be used. */
static int rlship__is_member(rlship *w, const rlship_attr *attr) {
    static const char *const texts[] = {"name", "notes", "group", "project", "entity", "job_type", NULL};
    static const char *const arrays[] = {"tags", "dropped", NULL}, *const objects[] = {"config", "summary", "facts", NULL};
    const char *s = attr->kind == 'j' ? attr->text : "";
    while (rlship__blank(*s)) s++;
    if (attr->kind == 's' ? rlship__among(attr->name, texts)
                          : (*s == '[' && rlship__among(attr->name, arrays)) || (*s == '{' && rlship__among(attr->name, objects)))
        return 1;
    if (attr->kind == 'n' && !strcmp(attr->name, "exit_code") && attr->number >= -255 && attr->number <= 255 &&
        attr->number == (double)(int)attr->number)
        return 1;
    rlship__refuse(w, RLSHIP__SETTINGS, "run", "%.40s is no member of a run, or not of this type; it is left out", attr->name);
    return 0;
}

static void rlship__note(rlship *w, const char *object, const rlship_attr *attrs, size_t count) {
    enum { LARGEST = 512 << 10 };
    rlship__noted noted;
    rlship__text pair = {NULL, 0, 0, 0}, kept = {NULL, 0, 0, 0};
    rlship_attr clean;
    int saved = errno;
    size_t i, j;
    if (!w) return;
    memset(&noted, 0, sizeof noted);
    noted.object = object;
    for (i = 0; i < count; i++) {
        const rlship_attr *attr = &attrs[i];
        int hint, secret;
        size_t key;
        int64_t length = 0;
        if (!rlship__named(w, *object ? object : "run", attr->name) || (!*object && !rlship__is_member(w, attr))) continue;
        for (j = i + 1; j < count && (!attrs[j].name || strcmp(attrs[j].name, attr->name));) j++;
        if (j < count) continue; /* of one name the last */
        rlship__begin_noted(&noted);
        hint = rlship__hint(attr->name);
        secret = attr->kind == 's' ? rlship__is_secret(hint, attr->text) : attr->kind == 'j' && rlship__json_secret(hint, attr->text);
        pair.size = 0;
        if (secret && attr->kind == 'j' && rlship__cleaned(object, attr, &kept, &noted.dropped)) {
            clean = *attr;
            clean.text = kept.data;
            attr = &clean;
        } else if (secret) {
            rlship__adds(&pair, object);
            rlship__adds(&pair, *object ? "." : "");
            rlship__adds(&pair, attr->name);
            rlship__add(&pair, "", 1);
            if (noted.dropped.size) rlship__adds(&noted.dropped, ",");
            if (!pair.broken && noted.dropped.size < RLSHIP__SETTING) rlship__string(&noted.dropped, pair.data, 2000, NULL);
            continue;
        }
        rlship__string(&pair, attr->name, RLSHIP__LINE, NULL);
        key = pair.size;
        rlship__adds(&pair, ":");
        rlship__value(&pair, attr, attr->kind == 's' ? (size_t)RLSHIP__SETTING : SIZE_MAX, &length);
        if (pair.size - key > LARGEST || (attr->kind == 's' && length > RLSHIP__SETTING)) {
            rlship__refuse(w, RLSHIP__SETTINGS, *object ? object : "run", "%.40s is longer than 65536 bytes as a text, or 512 KiB as JSON: %s", attr->name,
                           attr->kind == 's' ? "its beginning is kept" : "it is left out");
            if (attr->kind == 'j') continue;
        }
        if (noted.line.size + pair.size + noted.dropped.size + 64 > RLSHIP__LINE) {
            rlship__put_noted(w, &noted);
            rlship__begin_noted(&noted);
        }
        if (!noted.count && *object) rlship__addf(&noted.line, ",\"%s\":{", object);
        if (noted.count || !*object) rlship__adds(&noted.line, ",");
        noted.count++;
        rlship__add(&noted.line, pair.data, pair.size);
        rlship__adds(&noted.names, object);
        rlship__add(&noted.names, pair.data, key);
        noted.joins |= attr->kind == 'j' && strchr(attr->text, '{') != NULL;
        noted.line.broken |= pair.broken;
    }
    rlship__put_noted(w, &noted);
    rlship__free(&noted.line);
    rlship__free(&noted.names);
    rlship__free(&noted.dropped);
    rlship__free(&pair);
    rlship__free(&kept);
    errno = saved;
}

void rlship_config(rlship *w, const rlship_attr *values, size_t count) { rlship__note(w, "config", values, count); }
void rlship_summary(rlship *w, const rlship_attr *values, size_t count) { rlship__note(w, "summary", values, count); }
void rlship_run(rlship *w, const rlship_attr *members, size_t count) { rlship__note(w, "", members, count); }

/* --- steps, and the end --- */

static void rlship__mark(rlship *w, int64_t step, const char *kind) {
    rlship__text line = {NULL, 0, 0, 0};
    int saved = errno;
    if (!w || !rlship__step(w, kind, step, 1)) return;
    rlship__reach(w, kind, step);
    rlship__head(&line, step, kind, rlship__now());
    rlship__adds(&line, "}\n");
    rlship__give(w, &line, step, 1);
    if (rlship__enter(w)) {
        rlship__rouse(w);
        rlship__leave(w);
    }
    errno = saved;
}

void rlship_barrier(rlship *w, int64_t step) { rlship__mark(w, step, "barrier"); }
void rlship_rollback(rlship *w, int64_t step) { rlship__mark(w, step, "rollback"); }

/* macOS cannot let a condition wait by the monotonic clock. */
#ifdef __APPLE__
#define RLSHIP__WAIT_CLOCK CLOCK_REALTIME
#else
#define RLSHIP__WAIT_CLOCK CLOCK_MONOTONIC
#endif

/* Wait for a signal, at most so long. With the lock held. */
static void rlship__wait(pthread_cond_t *signal, pthread_mutex_t *lock, double seconds) {
    struct timespec until;
    clock_gettime(RLSHIP__WAIT_CLOCK, &until);
    if (seconds < 0) seconds = 0;
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_cond_timedwait(signal, lock, &until);
}

/* Wait until the thread has served what is asked now. With the lock held. */
static int rlship__wait_served(rlship *w) {
    double deadline = rlship__ticks() + RLSHIP__END_S;
    uint64_t ticket = ++w->asked;
    rlship__rouse(w);
    while (w->running && w->served < ticket && !w->ended && rlship__ticks() < deadline)
        rlship__wait(&w->done, &w->lock, deadline - rlship__ticks());
    return w->served >= ticket;
}

int rlship_flush(rlship *w) {
    int saved = errno, done = 1;
    if (rlship__enter(w)) {
        done = rlship__wait_served(w);
        rlship__leave(w);
    }
    errno = saved;
    return done;
}

int rlship_close(rlship *w) {
    rlship__text line = {NULL, 0, 0, 0};
    int saved = errno, done = 1;
    if (!rlship__enter(w)) return 1;
    rlship__adds(&line, "{\"kind\":\"close\",");
    rlship__time(&line, rlship__now());
    rlship__adds(&line, ",\"reason\":\"exit\"}\n");
    if (!line.broken) rlship__append(w, line.data, line.size, -1, 1);
    rlship__free(&line);
    w->closed = 1;
    done = rlship__wait_served(w);
    if (w->running && w->ended) {
        pthread_t thread = w->thread;
        w->running = 0;
        rlship__free(&w->pending);
        rlship__leave(w);
        pthread_join(thread, NULL);
    } else {
        if (w->running) pthread_detach(w->thread);
        rlship__leave(w);
    }
    errno = saved;
    return done;
}

uint64_t rlship_dropped(rlship *w) {
    uint64_t dropped = 0;
    if (w) {
        pthread_mutex_lock(&w->lock);
        dropped = w->dropped_ever;
        pthread_mutex_unlock(&w->lock);
    }
    return dropped;
}

static void rlship__at_exit(void) {
    rlship *w;
    pthread_mutex_lock(&rlship__registry);
    w = rlship__all;
    pthread_mutex_unlock(&rlship__registry);
    for (; w; w = w->next) {
        int begun;
        pthread_mutex_lock(&w->lock);
        begun = w->running; /* not in a forked child that has not logged */
        pthread_mutex_unlock(&w->lock);
        if (begun) rlship_close(w);
    }
}

/* --- fork: the child drops what is the parent's, and opens a file of its own at its first call --- */

static void rlship__before_fork(void) {
    rlship *w;
    pthread_mutex_lock(&rlship__registry);
    for (w = rlship__all; w; w = w->next) pthread_mutex_lock(&w->lock);
}

static void rlship__in_parent(void) {
    rlship *w;
    for (w = rlship__all; w; w = w->next) pthread_mutex_unlock(&w->lock);
    pthread_mutex_unlock(&rlship__registry);
}

static void rlship__conditions(rlship *w) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
#ifndef __APPLE__
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
#endif
    pthread_cond_init(&w->wake, &attributes);
    pthread_cond_init(&w->done, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void rlship__in_child(void) {
    rlship *w;
    for (w = rlship__all; w; w = w->next) {
        rlship__file *file = w->file, *own;
        struct stat status;
        if (file && w->running) {
            memcpy(w->named_parent, w->id, sizeof w->id);
            w->parent = w->named_parent;
            /* Else the job has closed it and the number is another file's. */
            if (file->fd >= 0 && !fstat(file->fd, &status) && status.st_dev == file->dev && status.st_ino == file->ino)
                close(file->fd);
            own = (rlship__file *)calloc(1, sizeof *own);
            if (own) {
                own->fd = -1;
                own->inherited = file;
                own->repeat = 1;
                w->ran = NULL; /* the parent's file has it; its memory stays the parent's copy */
                w->ran_size = 0;
                w->file = own;
                rlship__identify(w);
            } else {
                w->closed = 1;
            }
        }
        w->running = w->woken = w->ended = 0;
        w->pending.size = w->in_flight = 0;
        w->asked = w->served = w->dropped_ever = 0;
        w->promised = w->logged = w->at = 0;
        w->owed = 0;
        memset(&w->dropped, 0, sizeof w->dropped);
        w->opener = pthread_self();
        pthread_mutex_init(&w->lock, NULL);
        rlship__conditions(w); /* the parent's threads may have waited for them */
    }
    pthread_mutex_init(&rlship__registry, NULL);
}

/* --- the file: all of this runs on the writing thread --- */

#ifdef __linux__
/* Whether others see a write without fdatasync. Where that cannot be told they do not: syncing is only slower. */
static int rlship__is_network(int fd) {
    static const uint32_t local[] = {
        0xEF53 /* ext2, ext3, ext4 */, 0x58465342 /* xfs */,     0x9123683E /* btrfs */,    0x01021994 /* tmpfs */,
        0x858458F6 /* ramfs */,        0x794C7630 /* overlay */, 0x2FC12FC1 /* zfs */,      0xF2F52010 /* f2fs */,
        0xCA451A4E /* bcachefs */,     0x52654973 /* reiserfs */, 0x3153464A /* jfs */,     0x61756673 /* aufs */,
        0x4D44 /* vfat */,             0x2011BAB0 /* exfat */,   0x7366746E /* ntfs3 */,    0x3434 /* nilfs */};
    struct statfs status;
    size_t i;
    if (fstatfs(fd, &status)) return 1;
    for (i = 0; i < sizeof local / sizeof *local; i++)
        if ((uint32_t)status.f_type == local[i]) return 0;
    return 1;
}
#else
static int rlship__is_network(int fd) { return fd >= 0; }
#endif

/* Whether a folder is in one that is meant for its group: it has the set-group-ID bit and lets the group write, or else
   one above it does, up to the first without the bit. Another process may just have made the one between. */
static int rlship__is_shared(int folder) {
    char up[96] = "..";
    struct stat above;
    while (strlen(up) + 3 < sizeof up && !fstatat(folder, up, &above, 0) && above.st_mode & S_ISGID) {
        if (above.st_mode & S_IWGRP) return 1;
        strcat(up, "/..");
    }
    return 0;
}

/* A new folder lets its group write where it is meant for the group. A umask that lets the group not even read is
   heeded. */
static void rlship__open_to_group(const char *path) {
    struct stat made;
    mode_t reads = S_IRGRP | S_IXGRP;
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0) return;
    if (!fstat(folder, &made) && rlship__is_shared(folder) &&
        (made.st_mode & reads) == reads && fchmod(folder, (made.st_mode & 07777) | S_IWGRP))
        errno = 0; /* the sidecar reports it where it matters */
    close(folder);
}

static void rlship__make_folders(char *path) {
    char *slash;
    for (slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (!mkdir(path, 0777)) rlship__open_to_group(path); /* opening the file reports what could not be made */
        *slash = '/';
    }
}

/* At most 48 letters, digits, '.' and '_' of a part of the file's name, and no leading dot. */
static void rlship__part(rlship__text *path, const char *name) {
    int count = 0;
    if (!*name) rlship__adds(path, "_");
    for (; *name && count < 48; name++) {
        char c = *name;
        int good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        if ((c & 0xC0) == 0x80) continue; /* the rest of a character */
        if (c == '.' && count) good = 1;
        rlship__add(path, good ? &c : "_", 1);
        count++;
    }
}

static char *rlship__new_path(rlship *w, const char *host) {
    rlship__text path = {NULL, 0, 0, 0};
    rlship__adds(&path, w->folder);
    rlship__adds(&path, "/rlship/");
    rlship__part(&path, w->actor);
    rlship__adds(&path, "-");
    rlship__part(&path, w->replica);
    rlship__addf(&path, "-r%" PRId64 "-", w->rank);
    rlship__part(&path, host);
    rlship__addf(&path, "-%ld-%s.jsonl", (long)getpid(), w->id);
    rlship__add(&path, "", 1);
    if (path.broken) rlship__free(&path);
    return path.data;
}

/* Which processes our pid counts among: the kernel's boot and the pid namespace. Linux alone says so. */
static void rlship__pid_space(rlship__text *text) {
    char boot[64], space[64];
    ssize_t length = -1, size;
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        length = read(file, boot, sizeof boot - 1);
        close(file);
    }
    size = readlink("/proc/self/ns/pid", space, sizeof space - 1);
    if (length <= 0 || size <= 0) return;
    boot[length] = space[size] = 0;
    boot[strcspn(boot, "\n")] = 0;
    rlship__addf(text, "\"pid_space\":\"%s %s\",", boot, space);
}

static void rlship__open_record(rlship *w, rlship__text *text, const char *host) {
    rlship__addf(text, "{\"kind\":\"open\",\"rlship\":1,\"id\":\"%s\",\"actor\":", w->id);
    rlship__string(text, w->actor, 4096, NULL);
    rlship__adds(text, ",\"replica\":");
    rlship__string(text, w->replica, 4096, NULL);
    rlship__addf(text, ",\"rank\":%" PRId64, w->rank);
    if (w->world > 0) rlship__addf(text, ",\"world\":%" PRId64, w->world);
    rlship__addf(text, ",\"attempt\":%" PRId64 ",\"axis\":", w->attempt);
    rlship__string(text, w->axis, 4096, NULL);
    rlship__addf(text, ",\"beat\":%d,\"host\":", (int)RLSHIP__BEAT_S);
    rlship__string(text, host, 1000, NULL);
    rlship__addf(text, ",\"pid\":%ld,", (long)getpid());
    rlship__pid_space(text);
    rlship__time(text, rlship__now());
    rlship__adds(text, ",\"writer\":\"c/" RLSHIP_VERSION "\"");
    if (w->parent) {
        rlship__adds(text, ",\"parent\":");
        rlship__string(text, w->parent, 1000, NULL);
    }
    rlship__adds(text, "}\n");
}

/* Lines that have to stand before all others, then what is lost, then the definitions. */
static int rlship__put_front(rlship *w, int header) {
    rlship__file *file = w->file;
    rlship__entry *entry;
    char host[256];
    file->front.size = file->front_at = 0;
    if (header) {
        if (gethostname(host, sizeof host) || !*host) snprintf(host, sizeof host, "unknown");
        host[sizeof host - 1] = 0;
        rlship__open_record(w, &file->front, host);
    } else {
        rlship__adds(&file->front, "\n"); /* what may be torn becomes a line of its own */
    }
    rlship__gaps(&file->front, &file->lost);
    pthread_mutex_lock(&w->lock);
    for (entry = header && !file->repeat ? NULL : w->defined; entry; entry = entry->next)
        rlship__add(&file->front, entry->line, entry->size);
    for (entry = header && !file->repeat ? NULL : w->ran; entry; entry = entry->next)
        rlship__add(&file->front, entry->line, entry->size);
    pthread_mutex_unlock(&w->lock);
    return file->front.broken ? ENOMEM : 0;
}

static void rlship__let_go(rlship__file *file) {
    if (file->fd >= 0) close(file->fd);
    file->fd = -1;
}

static void rlship__doubt_all(rlship__file *file) {
    rlship__merge(&file->lost, &file->unsynced);
    rlship__merge(&file->lost, &file->unseen);
}

/* The file is gone, or its header may be: the next one has another id. The line in hand goes there as a whole. */
static void rlship__abandon(rlship *w) {
    rlship__file *file = w->file;
    rlship__let_go(file);
    file->created = 0;
    file->repeat = 1;
    file->front.size = file->front_at = 0;
    rlship__doubt_all(file);
    while (file->chunk_at && file->chunk.data[file->chunk_at - 1] != '\n') file->chunk_at--;
    pthread_mutex_lock(&w->lock);
    rlship__identify(w);
    pthread_mutex_unlock(&w->lock);
}

/* How much of the line in hand is in the file is unknown: it is given up. */
static int rlship__break_line(rlship *w) {
    rlship__file *file = w->file;
    if (file->front_at < file->front.size && !file->header_safe && !file->chunk_at) {
        rlship__abandon(w); /* the header itself: only another file has one for sure */
        return EIO;
    }
    if (file->chunk_at && file->chunk.data[file->chunk_at - 1] != '\n') {
        const char *rest = file->chunk.data + file->chunk_at;
        const char *lf = (const char *)memchr(rest, '\n', file->chunk.size - file->chunk_at);
        size_t begin = file->chunk_at;
        while (begin && file->chunk.data[begin - 1] != '\n') begin--;
        file->chunk_at = (size_t)(lf - file->chunk.data) + 1;
        rlship__count_lines(&file->lost, file->chunk.data + begin, file->chunk_at - begin);
    }
    return rlship__put_front(w, 0);
}

/* Make the books agree with the size that the file has. */
static int rlship__settle(rlship *w, off_t size) {
    rlship__file *file = w->file;
    int less = size < file->offset;
    if (size == file->offset) return 0;
    file->offset = size;
    if (less) rlship__doubt_all(file); /* cut by another hand */
    return rlship__break_line(w);
}

/* Take the file that was just opened as ours. */
static int rlship__adopt(rlship__file *file, off_t *size) {
    struct stat status;
    if (fstat(file->fd, &status)) {
        int error = errno;
        rlship__let_go(file);
        return error;
    }
    file->dev = status.st_dev;
    file->ino = status.st_ino;
    file->network = rlship__is_network(file->fd);
    file->look_at = rlship__ticks() + RLSHIP__LOOK_S;
    *size = status.st_size;
    return 0;
}

static int rlship__create(rlship *w) {
    rlship__file *file = w->file;
    char host[256];
    off_t size;
    int error;
    if (gethostname(host, sizeof host) || !*host) snprintf(host, sizeof host, "unknown");
    host[sizeof host - 1] = 0;
    free(file->path);
    file->path = rlship__new_path(w, host);
    if (!file->path) return ENOMEM;
    file->fd = open(file->path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file->fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        rlship__make_folders(file->path);
        file->fd = open(file->path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    if (file->fd < 0) {
        error = errno;
        if (error == EEXIST) rlship__abandon(w); /* never share a file */
        return error;
    }
    if ((error = rlship__adopt(file, &size))) return error;
    file->created = 1;
    file->header_safe = 0;
    file->offset = 0;
    return rlship__put_front(w, 1);
}

/* The nearest folder above `path` that is there. */
static int rlship__stat_above(const char *path, struct stat *status) {
    char *copy = strdup(path), *slash;
    int found = 0;
    while (copy && !found && (slash = strrchr(copy, '/'))) {
        slash[slash == copy] = 0;
        found = !stat(copy, status);
        if (slash == copy) break;
    }
    free(copy);
    return found;
}

static int rlship__has_folder(const char *path) {
    char *copy = strdup(path);
    struct stat status;
    int found = 0;
    if (copy) {
        *strrchr(copy, '/') = 0;
        found = !stat(copy, &status) && S_ISDIR(status.st_mode);
    }
    free(copy);
    return found;
}

/* Whether who opens the path finds our file, or would but for a folder's new name. */
static int rlship__in_place(const rlship__file *file) {
    struct stat status;
    if (!stat(file->path, &status)) return status.st_dev == file->dev && status.st_ino == file->ino;
    if (errno != ENOENT && errno != ENOTDIR) return 1; /* it tells nothing of our file */
    if (rlship__has_folder(file->path)) return 0;
    /* Where a mount was taken away, what is left of the path is on another filesystem. */
    return rlship__stat_above(file->path, &status) && status.st_dev == file->dev;
}

static int rlship__reopen(rlship *w) {
    rlship__file *file = w->file;
    off_t size;
    int error;
    file->fd = open(file->path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file->fd < 0) {
        error = errno;
        /* A missing folder is a mount that has not come back yet; a missing file in its folder is gone for good. */
        if (error != ENOENT || !rlship__has_folder(file->path)) return error;
        rlship__abandon(w);
        return rlship__create(w);
    }
    if ((error = rlship__adopt(file, &size))) return error;
    return rlship__settle(w, size);
}

/* A descriptor that leads to our file, whatever it takes; 0 or an errno. */
static int rlship__ready(rlship *w) {
    rlship__file *file = w->file;
    struct stat status;
    if (!file->created) return rlship__create(w);
    if (file->fd < 0) return rlship__reopen(w);
    if (fstat(file->fd, &status)) {
        int error = errno;
        if (error == EBADF)
            file->fd = -1;
        else
            rlship__let_go(file);
        return error;
    }
    if (status.st_dev != file->dev || status.st_ino != file->ino) {
        file->fd = -1; /* the program closed our descriptor, and the number is another file's now */
        return rlship__reopen(w);
    }
    if (!status.st_nlink) {
        rlship__abandon(w);
        return rlship__create(w);
    }
    if (status.st_size != file->offset) return rlship__settle(w, status.st_size);
    if (rlship__ticks() >= file->look_at) {
        file->look_at = rlship__ticks() + RLSHIP__LOOK_S;
        if (!rlship__in_place(file)) {
            rlship__let_go(file);
            return rlship__reopen(w);
        }
        memset(&file->unseen, 0, sizeof file->unseen);
    }
    return 0;
}

/* Write a text from `*at` on. What a failed write has put there all the same is settled by rlship__ready. */
static int rlship__write(rlship__file *file, const rlship__text *text, size_t *at) {
    while (*at < text->size) {
        ssize_t n = write(file->fd, text->data + *at, text->size - *at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            int error = n ? errno : ENOSPC;
            if (error == EBADF)
                file->fd = -1;
            else if (error == ESTALE || error == ENODEV || error == ENXIO || error == ENOTCONN)
                rlship__let_go(file);
            return error;
        }
        *at += (size_t)n;
        file->offset += n;
    }
    return 0;
}

/* Write everything there is; `*wrote`, whether that was anything. 0 or an errno. */
static int rlship__write_out(rlship *w, int *wrote) {
    rlship__file *file = w->file;
    size_t front, chunk;
    int error = rlship__ready(w);
    if (error) return error;
    front = file->front_at, chunk = file->chunk_at;
    if (file->front.size) {
        error = rlship__write(file, &file->front, &file->front_at);
        *wrote |= file->front_at > front;
        if (error) return error;
        file->front.size = file->front_at = 0;
    }
    error = rlship__write(file, &file->chunk, &file->chunk_at);
    *wrote |= file->chunk_at > chunk;
    if (error) return error;
    rlship__count_lines(&file->unsynced, file->chunk.data, file->chunk.size);
    file->chunk.size = file->chunk_at = 0;
    pthread_mutex_lock(&w->lock);
    w->in_flight = 0;
    pthread_mutex_unlock(&w->lock);
    return 0;
}

static void rlship__safe(rlship__file *file) {
    rlship__merge(&file->unseen, &file->unsynced);
    file->header_safe = 1;
}

static int rlship__sync(rlship *w) {
    rlship__file *file = w->file;
    struct stat status;
    int error;
#ifdef __APPLE__
    error = fsync(file->fd) ? errno : 0;
#else
    error = fdatasync(file->fd) ? errno : 0;
#endif
    if (!error || error == EINVAL || error == ENOTSUP) {
        rlship__safe(file);
        return 0;
    }
    if (error == EBADF || error == ESTALE || error == ENODEV || error == ENOTCONN) {
        rlship__let_go(file);
        return error;
    }
    rlship__merge(&file->lost, &file->unsynced);
    if (!file->header_safe) {
        rlship__abandon(w);
    } else {
        if (!fstat(file->fd, &status)) file->offset = status.st_size;
        rlship__break_line(w);
    }
    return error;
}

static void rlship__beat(rlship__file *file) {
    rlship__adds(&file->chunk, "{\"kind\":\"beat\",");
    rlship__time(&file->chunk, rlship__now());
    rlship__adds(&file->chunk, "}\n");
}

/* Seconds between two syncs: max(0.5, min(world / 500, 2), world / 2000), at most about 2,000 syncs a second of a job. */
static double rlship__sync_s(int64_t world) {
    double ranks = world > 0 ? (double)world : 1;
    double most = ranks / 500 < 2 ? ranks / 500 : 2;
    if (most < ranks / 2000) most = ranks / 2000;
    return most < 0.5 ? 0.5 : most;
}

static void *rlship__run(void *argument) {
    rlship *w = (rlship *)argument;
    rlship__file *file = w->file;
    double sync_s = rlship__sync_s(w->world), backoff = RLSHIP__BACKOFF_S;
    /* Ranks start together: a random phase keeps them from syncing together. */
    double next_sync = rlship__ticks() + sync_s * (double)(rlship__random() >> 56) / 256;
    double last = rlship__ticks(), closing = 0;
    int unsynced = 0, failing = 0;
    for (;;) {
        uint64_t asked;
        int closed, error, wrote = 0;
        double now;
        pthread_mutex_lock(&w->lock);
        asked = w->asked;
        closed = w->closed;
        w->woken = 0;
        if (!file->chunk.size && (rlship__tell_dropped(w, 0, 1), w->pending.size)) {
            rlship__text spare = file->chunk;
            file->chunk = w->pending;
            w->pending = spare;
            w->in_flight = file->chunk.size;
        }
        pthread_mutex_unlock(&w->lock);
        now = rlship__ticks();
        if (closed && closing == 0) closing = now;
        if (!file->chunk.size && file->created && !failing && now - last >= RLSHIP__BEAT_S) rlship__beat(file);

        error = rlship__write_out(w, &wrote);
        if (wrote) unsynced = 1, last = rlship__ticks();
        if (!error && unsynced && !file->network) {
            rlship__safe(file);
            unsynced = 0;
        }
        pthread_mutex_lock(&w->lock);
        if (!error && unsynced && (asked > w->served || closed || failing || rlship__ticks() >= next_sync)) {
            pthread_mutex_unlock(&w->lock);
            next_sync = rlship__ticks() + sync_s;
            unsynced = 0;
            error = rlship__sync(w);
            pthread_mutex_lock(&w->lock);
        }
        if (error) {
            if (!failing) {
                char what[400];
                snprintf(what, sizeof what, "%s: error %d (%s); keeping lines in memory and trying again",
                         file->path ? file->path : w->folder, error, strerror(error));
                rlship__tell(w, RLSHIP__WRITE, "write", what);
            }
            failing = 1;
        } else if (failing) {
            failing = 0;
            backoff = RLSHIP__BACKOFF_S;
            pthread_mutex_unlock(&w->lock);
            continue; /* what came in meanwhile */
        } else {
            w->served = asked;
            pthread_cond_broadcast(&w->done);
        }
        if (closed && ((!error && !w->pending.size) || rlship__ticks() - closing >= RLSHIP__END_S)) break;
        if (failing) {
            /* No wake shortens the wait, or each line logged would be one more attempt. */
            double until = rlship__ticks() + backoff;
            while (rlship__ticks() < until && !(w->closed && !closed))
                rlship__wait(&w->wake, &w->lock, closed ? 0.05 : until - rlship__ticks());
            backoff = backoff * 2 < RLSHIP__BACKOFF_MOST_S ? backoff * 2 : RLSHIP__BACKOFF_MOST_S;
        } else if (!w->woken) {
            double most = RLSHIP__FLUSH_S;
            if (unsynced && next_sync - rlship__ticks() < most) most = next_sync - rlship__ticks();
            rlship__wait(&w->wake, &w->lock, most);
        }
        pthread_mutex_unlock(&w->lock);
    }
    rlship__let_go(file);
    rlship__free(&file->chunk);
    rlship__free(&file->front);
    w->ended = 1;
    pthread_cond_broadcast(&w->done);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* --- who this is --- */

/* The first of these variables that is set and an integer in least..2^53-1, else -1. */
static int64_t rlship__variable(const char *const *names, int64_t least, int64_t most) {
    for (; *names; names++) {
        const char *text = getenv(*names), *s;
        int64_t value = 0;
        if (!text) continue;
        while (*text == ' ' || *text == '\t') text++;
        for (s = text; *s >= '0' && *s <= '9' && s - text < 17; s++) value = value * 10 + (*s - '0');
        while (*s == ' ' || *s == '\t' || *s == '\n') s++;
        if (!*text) continue;
        if (!*s && value >= least && value <= most) return value;
        rlship__say("%s=%.40s in the environment is not an integer from %" PRId64 " to %" PRId64 ", so it is left out", *names,
                    text, least, most);
    }
    return -1;
}

static int64_t rlship__own(const char *name, int64_t least, int64_t most) {
    const char *names[2];
    names[0] = name;
    names[1] = NULL;
    return rlship__variable(names, least, most);
}

/* Rank and world come as a pair from one source: the first that gives a rank. */
static void rlship__place(rlship *w) {
    static const char *const ranks[][3] = {{"RANK", NULL, NULL},
                                           {"RANK_ID", NULL, NULL},
                                           {"JAX_PROCESS_ID", "JAX_PROCESS_INDEX", NULL},
                                           {"OMPI_COMM_WORLD_RANK", NULL, NULL},
                                           {"PMI_RANK", NULL, NULL},
                                           {"PMIX_RANK", NULL, NULL},
                                           {"SLURM_PROCID", NULL, NULL}};
    static const char *const worlds[][3] = {{"WORLD_SIZE", NULL, NULL},
                                            {"RANK_SIZE", NULL, NULL},
                                            {"JAX_NUM_PROCESSES", "JAX_PROCESS_COUNT", NULL},
                                            {"OMPI_COMM_WORLD_SIZE", NULL, NULL},
                                            {"PMI_SIZE", NULL, NULL},
                                            {"SLURM_STEP_NUM_TASKS", NULL, NULL},
                                            {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", NULL}};
    const int64_t end = 1 << 20;
    int64_t own = rlship__own("RLSHIP_WORLD", 1, end);
    size_t i;
    if (w->rank < 0) w->rank = rlship__own("RLSHIP_RANK", 0, end - 1);
    for (i = 0; w->rank < 0 && i < sizeof ranks / sizeof *ranks; i++) {
        w->rank = rlship__variable(ranks[i], 0, end - 1);
        if (w->rank >= 0 && w->world < 1 && own < 1) w->world = rlship__variable(worlds[i], 1, end);
    }
    if (w->rank < 0) w->rank = 0;
    if (w->world < 1) w->world = own;
    if (w->world > 0 && w->rank >= w->world) {
        rlship__say("world %" PRId64 " is not above rank %" PRId64 ", so it is left out", w->world, w->rank);
        w->world = -1;
    }
}

static int64_t rlship__attempts(void) {
    static const char *const outers[] = {"SLURM_RESTART_COUNT", "JOBSET_RESTART_ATTEMPT", NULL};
    /* torchrun counts anew each time the batch system starts it again. */
    int64_t own = rlship__own("RLSHIP_ATTEMPT", 0, RLSHIP__LAST_STEP);
    int64_t outer = rlship__variable(outers, 0, 1 << 20), inner = rlship__own("TORCHELASTIC_RESTART_COUNT", 0, 1 << 20);
    return own >= 0 ? own : (outer > 0 ? outer * 1000 : 0) + (inner > 0 ? inner : 0);
}

static char *rlship__copy(const char *text) {
    size_t size = 0, characters = 0;
    char *copy;
    while (text[size] && ((text[size] & 0xC0) == 0x80 || characters < 200)) characters += (text[size++] & 0xC0) != 0x80;
    if (text[size]) rlship__say("%.40s… has more than 200 characters: only those are kept", text);
    copy = (char *)malloc(size + 1);
    if (copy) {
        memcpy(copy, text, size);
        copy[size] = 0;
    }
    return copy;
}

static char *rlship__absolute(const char *dir) {
    rlship__text path = {NULL, 0, 0, 0};
    char here[4096];
    if (*dir != '/' && getcwd(here, sizeof here)) {
        rlship__adds(&path, here);
        rlship__adds(&path, "/");
    }
    rlship__adds(&path, dir);
    rlship__add(&path, "", 1);
    if (path.broken) rlship__free(&path);
    return path.data;
}

static const char *rlship__or(const char *given, const char *variable) {
    return given && *given ? given : getenv(variable) ? getenv(variable) : "";
}

static rlship *rlship__open(char *folder, const char *actor, const rlship_options *options) {
    static const rlship_options none = RLSHIP_OPTIONS;
    const rlship_options *o = options ? options : &none;
    const char *replica = rlship__or(o->replica, "RLSHIP_REPLICA");
    rlship *w = (rlship *)calloc(1, sizeof *w);
    if (!w) return NULL;
    w->folder = folder;
    w->actor = rlship__copy(actor);
    w->replica = rlship__copy(*replica ? replica : "0");
    w->axis = rlship__copy(o->axis && *o->axis ? o->axis : "global_step");
    w->parent = o->parent && *o->parent ? rlship__copy(o->parent) : NULL;
    w->named_parent = (char *)malloc(sizeof w->id);
    if (!w->actor || !w->replica || !w->axis || !w->named_parent) {
        free(w->actor), free(w->replica), free(w->axis), free(w->parent), free(w->named_parent), free(w);
        return NULL;
    }
    w->rank = o->rank >= 0 && o->rank < 1 << 20 ? o->rank : -1;
    w->world = o->world > 0 && o->world <= 1 << 20 ? o->world : -1;
    rlship__place(w);
    w->attempt = o->attempt >= 0 && o->attempt <= RLSHIP__LAST_STEP ? o->attempt : rlship__attempts();
    pthread_mutex_init(&w->lock, NULL);
    rlship__conditions(w);
    return w;
}

rlship *rlship_open(const char *dir, const char *actor, const rlship_options *options) {
    const char *off = getenv("RLSHIP_DISABLE");
    char *folder = NULL;
    rlship *w = NULL;
    int saved = errno;
    if (off && *off && strcmp(off, "0") != 0) return NULL;
    dir = rlship__or(dir, "RLSHIP_DIR");
    actor = rlship__or(actor, "RLSHIP_ACTOR");
    if (!*dir || !*actor) {
        rlship__say("nothing is logged: %s is given, nor is %s set", *dir ? "no actor" : "no folder",
                    *dir ? "RLSHIP_ACTOR" : "RLSHIP_DIR");
        return NULL;
    }
    pthread_mutex_lock(&rlship__registry);
    folder = rlship__absolute(dir);
    for (w = folder ? rlship__all : NULL; w; w = w->next)
        if (!w->closed && !strcmp(w->folder, folder) && !strcmp(w->actor, actor)) break;
    if (w || !folder) {
        free(folder);
    } else if ((w = rlship__open(folder, actor, options))) {
        w->next = rlship__all;
        rlship__all = w;
        if (!rlship__hooked) {
            rlship__hooked = 1;
            pthread_atfork(rlship__before_fork, rlship__in_parent, rlship__in_child);
            atexit(rlship__at_exit);
        }
        pthread_mutex_lock(&w->lock);
        rlship__start(w);
        pthread_mutex_unlock(&w->lock);
    } else {
        free(folder);
    }
    pthread_mutex_unlock(&rlship__registry);
    if (!w) rlship__say("nothing is logged: no memory");
    errno = saved;
    return w;
}

#endif /* RLSHIP_IMPLEMENTATION */
