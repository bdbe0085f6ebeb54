/* The conformance driver of the C writer: reads commands from standard input, see tests/writers/commands.py. C99 and C++. */
#define RLSHIP_IMPLEMENTATION
#include "rlship.h"

#include <sys/wait.h>

enum { FIELDS = 4096 };

static rlship *writer;

/* Undo the escapes of one field, where it stands. */
static void unescape(char *field) {
    char *to = field, *from;
    for (from = field; *from; from++) {
        if (*from != '\\') {
            *to++ = *from;
            continue;
        }
        from++;
        if (*from == 'x') {
            char digits[3];
            memcpy(digits, from + 1, 2);
            digits[2] = 0;
            *to++ = (char)strtol(digits, NULL, 16);
            from += 2;
        } else {
            *to++ = *from == 't' ? '\t' : *from == 'n' ? '\n' : *from == 'r' ? '\r' : '\\';
        }
    }
    *to = 0;
}

static int64_t whole(const char *field) { return *field ? strtoll(field, NULL, 10) : -1; }

static void init(char **field) {
    rlship_options options = RLSHIP_OPTIONS;
    options.rank = whole(field[3]);
    options.world = whole(field[4]);
    options.replica = field[5];
    options.attempt = whole(field[6]);
    options.axis = field[7];
    options.parent = field[8];
    writer = rlship_open(field[1], field[2], &options);
}

static void log_metrics(char **field, size_t count) {
    rlship_metric *metrics = (rlship_metric *)calloc(count + 1, sizeof *metrics);
    size_t i, n = 0;
    for (i = 3; i + 1 < count; i += 2) {
        metrics[n].name = field[i];
        metrics[n++].value = strtod(field[i + 1], NULL);
    }
    if (*field[2])
        rlship_log_weighted(writer, whole(field[1]), metrics, n, strtod(field[2], NULL));
    else if (n == 1)
        rlship_log(writer, whole(field[1]), metrics[0].name, metrics[0].value);
    else
        rlship_log_metrics(writer, whole(field[1]), metrics, n);
    free(metrics);
}

static double *numbers(const char *list, size_t *count) {
    double *found = (double *)calloc(strlen(list) + 1, sizeof *found);
    char *end;
    for (*count = 0; *list; list = *end ? end + 1 : end) found[(*count)++] = strtod(list, &end);
    return found;
}

static void log_list(char **field) {
    size_t count, weighted;
    double *values = numbers(field[3], &count), *weights = numbers(field[4], &weighted);
    rlship_log_list(writer, whole(field[1]), field[2], values, weighted ? weights : NULL, count);
    free(values);
    free(weights);
}

static rlship_attr *attributes(char **field, size_t from, size_t count, size_t *n) {
    rlship_attr *found = (rlship_attr *)calloc(count + 1, sizeof *found);
    for (*n = 0; from + 1 < count; from += 2) {
        const char *name = field[from], *value = field[from + 1] + 2;
        switch (value[-2]) {
        case 'n': found[(*n)++] = rlship_number(name, strtod(value, NULL)); break;
        case 'b': found[(*n)++] = rlship_bool(name, *value == '1'); break;
        case 'j': found[(*n)++] = rlship_json(name, value); break;
        default: found[(*n)++] = rlship_text(name, value);
        }
    }
    return found;
}

/* The integers of a list, and how many each row has; `;` divides rows. */
static int64_t *integers(const char *list, int64_t *lengths) {
    int64_t *found = (int64_t *)calloc(strlen(list) + 1, sizeof *found), row = 0;
    size_t count = 0;
    lengths[0] = 0;
    while (*list) {
        char *end;
        if (*list == ';') {
            lengths[++row] = 0;
            list++;
        } else if (*list == ',') {
            list++;
        } else {
            found[count++] = strtoll(list, &end, 10);
            lengths[row]++;
            list = end;
        }
    }
    return found;
}

/* Pairs of names and values from the fifth field on: the second has the call as JSON, for other languages. */
static void enter(char **field, size_t count) {
    static rlship_group nothing;
    rlship_group group = nothing;
    static int64_t lengths[64], version[64], part[64], response, unused[64];
    static const char *names[64];
    int64_t *own[8];
    double *of[8];
    size_t i, made = 0, numbered = 0, n = 0;
    for (i = 5; i + 1 < count; i += 2) {
        const char *name = field[i];
        char *value = field[i + 1], *rest;
        if (!strcmp(name, "tokens")) {
            group.tokens64 = own[made++] = integers(value, lengths);
        } else if (!strcmp(name, "mask")) {
            unsigned char *mask = (unsigned char *)calloc(strlen(value) + 1, 1);
            int64_t *found = integers(value, unused);
            for (n = 0; n < strlen(value); n++) mask[n] = found[n] != 0;
            free(found);
            group.mask = mask;
        } else if (!strcmp(name, "reward")) {
            group.reward = of[numbered++] = numbers(value, &n);
            group.n = (int64_t)n;
        } else if (!strcmp(name, "advantage")) {
            group.advantage = of[numbered++] = numbers(value, &n);
        } else if (!strcmp(name, "sample")) {
            for (n = 0, rest = strtok(value, ","); rest; rest = strtok(NULL, ",")) names[n++] = rest;
            group.sample = names;
        } else if (!strcmp(name, "version")) {
            int64_t *found = integers(value, unused);
            version[0] = found[0], version[1] = found[1];
            free(found);
            group.version = version;
        } else if (!strcmp(name, "part")) {
            int64_t *found = integers(value, unused);
            part[0] = found[0], part[1] = found[1];
            free(found);
            group.part = part;
        } else if (!strcmp(name, "response")) {
            response = whole(value);
            group.response = &response;
        } else if (!strcmp(name, "retry")) {
            group.retry = whole(value);
        } else if (!strcmp(name, "passes")) {
            group.passes = whole(value);
        } else if (!strcmp(name, "n")) {
            group.n = whole(value);
        } else if (!strcmp(name, "why")) {
            group.why = value;
        } else if (!strcmp(name, "precision")) {
            group.bf16 = 1;
        }
    }
    if (group.tokens64) {
        group.lengths = lengths;
        for (group.n = 1, i = 5; i + 1 < count; i += 2)
            if (!strcmp(field[i], "tokens"))
                for (n = 0; field[i + 1][n]; n++) group.n += field[i + 1][n] == ';';
    }
    rlship_ledger(writer, whole(field[2]), field[3], field[4], &group);
    while (made) free(own[--made]);
    while (numbered) free(of[--numbered]);
    free((void *)group.mask);
}

typedef struct {
    pthread_t thread;
    int64_t lines;
} worker;

static void *work(void *argument) {
    int64_t step;
    for (step = 0; step < ((worker *)argument)->lines; step++) rlship_log(writer, step, "x", (double)step);
    return NULL;
}

static void threads(int64_t count, int64_t lines) {
    worker *workers = (worker *)calloc((size_t)count, sizeof *workers);
    int64_t i;
    for (i = 0; i < count; i++) {
        workers[i].lines = lines;
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    for (i = 0; i < count; i++) pthread_join(workers[i].thread, NULL);
    free(workers);
}

static void fork_child(char **field) {
    pid_t child = fork();
    if (!child) {
        rlship_log(writer, whole(field[1]), "x", strtod(field[2], NULL));
        rlship_close(writer);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

/* 0 where the program is to end. */
static int obey(char **field, size_t count) {
    const char *command = field[0];
    size_t n;
    int64_t i;
    if (!strcmp(command, "init")) {
        init(field);
    } else if (!strcmp(command, "define")) {
        unsigned flags = (*field[4] ? (unsigned)RLSHIP_PER_RANK : 0u) | (*field[5] ? (unsigned)RLSHIP_STREAM : 0u);
        rlship_define(writer, field[1], field[2], field[3], flags);
    } else if (!strcmp(command, "log")) {
        log_metrics(field, count);
    } else if (!strcmp(command, "list")) {
        log_list(field);
    } else if (!strcmp(command, "span")) {
        rlship_span_add(writer, whole(field[1]), field[2], strtod(field[3], NULL), field[4]);
    } else if (!strcmp(command, "event")) {
        rlship_attr *attrs = attributes(field, 3, count, &n);
        rlship_event(writer, whole(field[1]), field[2], attrs, n);
        free(attrs);
    } else if (!strcmp(command, "sample")) {
        rlship_attr *row = attributes(field, 4, count, &n);
        double score = strtod(field[3], NULL);
        rlship_sample(writer, whole(field[1]), field[2], *field[3] ? &score : NULL, row, n);
        free(row);
    } else if (!strcmp(command, "run")) {
        rlship_attr *members = attributes(field, 2, count, &n);
        (*field[1] == 'c' ? rlship_config : *field[1] == 's' ? rlship_summary : rlship_run)(writer, members, n);
        free(members);
    } else if (!strcmp(command, "ledger")) {
        enter(field, count);
    } else if (!strcmp(command, "weights")) {
        rlship_weights(writer, whole(field[2]), whole(field[6]), count > 8 ? field[8] : NULL);
    } else if (!strcmp(command, "barrier")) {
        rlship_barrier(writer, whole(field[1]));
    } else if (!strcmp(command, "rollback")) {
        rlship_rollback(writer, whole(field[1]));
    } else if (!strcmp(command, "flush")) {
        rlship_flush(writer);
    } else if (!strcmp(command, "close")) {
        rlship_close(writer);
    } else if (!strcmp(command, "sleep")) {
        usleep((useconds_t)whole(field[1]) * 1000);
    } else if (!strcmp(command, "burst")) {
        for (i = 0; i < whole(field[1]); i++) {
            rlship_log(writer, i, "x", (double)i);
            rlship_barrier(writer, i);
        }
    } else if (!strcmp(command, "threads")) {
        threads(whole(field[1]), whole(field[2]));
    } else if (!strcmp(command, "fork")) {
        fork_child(field);
    } else if (!strcmp(command, "abort")) {
        kill(getpid(), SIGKILL);
    } else {
        return 0;
    }
    return 1;
}

int main(void) {
    static char nothing[1];
    char *line = NULL, *field[FIELDS];
    size_t room = 0, count, i;
    int on = 1;
    while (on && getline(&line, &room, stdin) > 0) {
        line[strcspn(line, "\n")] = 0;
        for (i = 0; i < FIELDS; i++) field[i] = nothing;
        for (count = 0, field[0] = line; count < FIELDS - 1;) {
            char *tab = strchr(field[count++], '\t');
            if (!tab) break;
            *tab = 0;
            field[count] = tab + 1;
        }
        for (i = 0; i < count; i++) unescape(field[i]);
        on = obey(field, count);
    }
    free(line);
    return 0;
}
