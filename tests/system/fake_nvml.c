/* libnvidia-ml.so.1 for tests: the calls that system metrics make, with the structures of the real library.
 *
 * What it answers stands in the file that $FAKE_NVML names, "key value" a line, looked at at every call:
 *   gpus N                     how many there are
 *   G.<figure> V               a number of GPU G; one that is not there is NOT_SUPPORTED
 *   fail.<call>[.G] CODE       the call returns this error (of one GPU)
 *   hang.<call> 1              the call does not return while this stands there
 *   G.mig N                    GPU G has N MIG devices; theirs are G_M.<figure>
 *   G.proc.I PID BYTES SM      the I-th process on a device (BYTES -1: not told; SM -1: no sample of its use)
 * With -DOLD_DRIVER the calls of newer drivers are not there.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int status;
typedef void *device;
enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };

static int opened;

/* What the file holds, as one text with a line end before each line; it is replaced, never changed in place. */
static const char *answers(void) {
    static char *text;
    static ino_t inode;
    static struct timespec changed;
    struct stat file;
    const char *path = getenv("FAKE_NVML");
    if (!path || stat(path, &file)) return "";
    if (!text || file.st_ino != inode || memcmp(&file.st_mtim, &changed, sizeof changed)) {
        FILE *in = fopen(path, "r");
        size_t got;
        text = realloc(text, (size_t)file.st_size + 2);
        text[0] = '\n';
        got = in ? fread(text + 1, 1, (size_t)file.st_size, in) : 0;
        text[got + 1] = 0;
        if (in) fclose(in);
        inode = file.st_ino;
        changed = file.st_mtim;
    }
    return text;
}

static int line_of(const char *key, char *value, size_t size) {
    char start[160];
    const char *found;
    size_t length = (size_t)snprintf(start, sizeof start, "\n%s ", key);
    found = strstr(answers(), start);
    if (!found) return 0;
    snprintf(value, size, "%.*s", (int)strcspn(found + length, "\n"), found + length);
    return 1;
}

static int number(const char *key, double *value) {
    char text[256];
    if (!line_of(key, text, sizeof text)) return 0;
    *value = strtod(text, NULL);
    return 1;
}

/* A handle is 1 + 100 * GPU, plus 1 + the index of a MIG device. */
static int gpu_of(device handle) { return (int)((size_t)handle - 1) / 100; }
static int mig_of(device handle) { return (int)((size_t)handle - 1) % 100 - 1; }

static void name_of(device handle, char *name) {
    if (mig_of(handle) < 0) sprintf(name, "%d", gpu_of(handle));
    else sprintf(name, "%d_%d", gpu_of(handle), mig_of(handle));
}

static status check(const char *call, device handle) {
    char key[128];
    double value;
    snprintf(key, sizeof key, "hang.%s", call);
    while (number(key, &value) && value) usleep(10000);
    snprintf(key, sizeof key, "fail.%s", call);
    if (number(key, &value)) return (status)value;
    if (handle) {
        snprintf(key, sizeof key, "fail.%s.%d", call, gpu_of(handle));
        if (number(key, &value)) return (status)value;
        snprintf(key, sizeof key, "fail.any.%d", gpu_of(handle));
        if (number(key, &value)) return (status)value;
    }
    return opened ? OK : UNINITIALIZED;
}

static int figure(device handle, const char *what, double *value) {
    char key[128], name[16];
    name_of(handle, name);
    snprintf(key, sizeof key, "%s.%s", name, what);
    return number(key, value);
}

static status whole(const char *call, device handle, const char *what, unsigned *value) {
    double found;
    status failed = check(call, handle);
    if (failed) return failed;
    if (!figure(handle, what, &found)) return NOT_SUPPORTED;
    *value = (unsigned)found;
    return OK;
}

status nvmlInitWithFlags(unsigned flags) {
    double value;
    (void)flags;
    if (number("fail.nvmlInitWithFlags", &value)) return (status)value;
    opened++;
    return OK;
}

status nvmlShutdown(void) {
    if (!opened) return UNINITIALIZED;
    opened--;
    return OK;
}

const char *nvmlErrorString(status code) { (void)code; return "an error"; }

status nvmlSystemGetDriverVersion(char *text, unsigned size) {
    snprintf(text, size, "580.1.2");
    return check("nvmlSystemGetDriverVersion", NULL);
}

status nvmlDeviceGetCount_v2(unsigned *count) {
    double value = 0;
    status failed = check("nvmlDeviceGetCount_v2", NULL);
    number("gpus", &value);
    *count = (unsigned)value;
    return failed;
}

status nvmlDeviceGetHandleByIndex_v2(unsigned index, device *handle) {
    *handle = (device)(size_t)(1 + 100 * index);
    return check("nvmlDeviceGetHandleByIndex_v2", *handle);
}

status nvmlDeviceGetUUID(device handle, char *text, unsigned size) {
    if (mig_of(handle) < 0) snprintf(text, size, "GPU-%d000-aa", gpu_of(handle));
    else snprintf(text, size, "MIG-%d%d00-bb", gpu_of(handle), mig_of(handle));
    return check("nvmlDeviceGetUUID", handle);
}

status nvmlDeviceGetName(device handle, char *text, unsigned size) {
    snprintf(text, size, "NVIDIA Test");
    return check("nvmlDeviceGetName", handle);
}

static status memory_of(device handle, double *used, double *reserved, double *total) {
    status failed = check("nvmlDeviceGetMemoryInfo", handle);
    if (failed) return failed;
    *reserved = 0;
    figure(handle, "mem_reserved", reserved);
    return figure(handle, "mem", used) && figure(handle, "mem_total", total) ? OK : NOT_SUPPORTED;
}

status nvmlDeviceGetMemoryInfo(device handle, unsigned long long *memory) {
    double used, reserved, total;
    status failed = memory_of(handle, &used, &reserved, &total);
    if (failed) return failed;
    memory[0] = (unsigned long long)total;
    memory[1] = (unsigned long long)(total - used - reserved);
    memory[2] = (unsigned long long)(used + reserved);
    return OK;
}

status nvmlDeviceGetUtilizationRates(device handle, unsigned *rates) {
    return whole("nvmlDeviceGetUtilizationRates", handle, "util", rates);
}

status nvmlDeviceGetPowerUsage(device handle, unsigned *value) {
    return whole("nvmlDeviceGetPowerUsage", handle, "power_mw", value);
}

status nvmlDeviceGetEnforcedPowerLimit(device handle, unsigned *value) {
    return whole("nvmlDeviceGetEnforcedPowerLimit", handle, "power_limit_mw", value);
}

status nvmlDeviceGetTemperature(device handle, unsigned sensor, unsigned *value) {
    if (sensor) return INVALID;
    return whole("nvmlDeviceGetTemperature", handle, "temp", value);
}

status nvmlDeviceGetClockInfo(device handle, unsigned type, unsigned *value) {
    return whole("nvmlDeviceGetClockInfo", handle, type == 1 ? "sm_clock" : type == 2 ? "mem_clock" : "none", value);
}

static status reasons(const char *call, device handle, unsigned long long *value) {
    double found;
    status failed = check(call, handle);
    if (failed) return failed;
    if (!figure(handle, "reasons", &found)) return NOT_SUPPORTED;
    *value = (unsigned long long)found;
    return OK;
}

status nvmlDeviceGetCurrentClocksThrottleReasons(device handle, unsigned long long *value) {
    return reasons("nvmlDeviceGetCurrentClocksThrottleReasons", handle, value);
}

status nvmlDeviceGetTotalEccErrors(device handle, unsigned kind, unsigned counter, unsigned long long *value) {
    double found;
    status failed = check("nvmlDeviceGetTotalEccErrors", handle);
    if (failed) return failed;
    if (counter || !figure(handle, kind ? "ecc_uncorrected" : "ecc_corrected", &found)) return NOT_SUPPORTED;
    *value = (unsigned long long)found;
    return OK;
}

status nvmlDeviceGetPcieThroughput(device handle, unsigned counter, unsigned *value) {
    return whole("nvmlDeviceGetPcieThroughput", handle, counter ? "pcie_rx_kb" : "pcie_tx_kb", value);
}

struct process { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };

/* The index-th process on a device. */
static int process(device handle, int index, long long *pid, long long *bytes, long long *use) {
    char key[64], name[16], text[256];
    name_of(handle, name);
    snprintf(key, sizeof key, "%s.proc.%d", name, index);
    return line_of(key, text, sizeof text) && sscanf(text, "%lld %lld %lld", pid, bytes, use) == 3;
}

static status running(const char *call, device handle, unsigned *count, struct process *found) {
    long long pid, bytes, use;
    unsigned total = 0;
    status failed = check(call, handle);
    if (failed) return failed;
    while (process(handle, (int)total, &pid, &bytes, &use)) {
        if (found && total < *count) {
            found[total].pid = (unsigned)pid;
            found[total].used = (unsigned long long)bytes; /* -1 is NVML's "not available" */
            found[total].gpu_instance = found[total].compute_instance = 0xFFFFFFFF;
        }
        total++;
    }
    if (total > *count || (total && !found)) {
        *count = total;
        return TOO_SMALL;
    }
    *count = total;
    return OK;
}

status nvmlDeviceGetComputeRunningProcesses_v2(device handle, unsigned *count, struct process *found) {
    return running("nvmlDeviceGetComputeRunningProcesses_v2", handle, count, found);
}

#ifndef OLD_DRIVER

struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

status nvmlDeviceGetMemoryInfo_v2(device handle, struct memory_v2 *memory) {
    double used, reserved, total;
    status failed = memory_of(handle, &used, &reserved, &total);
    if (failed) return failed;
    if (memory->version != (sizeof *memory | 2 << 24)) return 25;
    memory->total = (unsigned long long)total;
    memory->reserved = (unsigned long long)reserved;
    memory->free = (unsigned long long)(total - used - reserved);
    memory->used = (unsigned long long)used;
    return OK;
}

status nvmlDeviceGetComputeRunningProcesses_v3(device handle, unsigned *count, struct process *found) {
    return running("nvmlDeviceGetComputeRunningProcesses_v3", handle, count, found);
}

status nvmlDeviceGetGraphicsRunningProcesses_v3(device handle, unsigned *count, struct process *found) {
    (void)handle, (void)found;
    *count = 0;
    return OK;
}

status nvmlDeviceGetCurrentClocksEventReasons(device handle, unsigned long long *value) {
    return reasons("nvmlDeviceGetCurrentClocksEventReasons", handle, value);
}

struct sample { unsigned pid; unsigned long long t; unsigned sm, memory, encoder, decoder; };

status nvmlDeviceGetProcessUtilization(device handle, struct sample *found, unsigned *count, unsigned long long since) {
    long long pid, bytes, use;
    unsigned total = 0;
    double now = 1;
    status failed = check("nvmlDeviceGetProcessUtilization", handle);
    if (failed) return failed;
    if (mig_of(handle) >= 0 || figure(handle, "mig", &now)) return NOT_SUPPORTED;
    figure(handle, "sampled_us", &now);
    for (int i = 0; now > (double)since && process(handle, i, &pid, &bytes, &use); i++) {
        if (use < 0) continue;
        if (found && total < *count) {
            memset(&found[total], 0, sizeof *found);
            found[total].pid = (unsigned)pid;
            found[total].t = (unsigned long long)now;
            found[total].sm = (unsigned)use;
        }
        total++;
    }
    if (!total) return NOT_FOUND;
    *count = total;
    return found ? OK : TOO_SMALL;
}

struct field {
    unsigned id, scope;
    long long t, latency;
    int type, result;
    union { double d; unsigned u; unsigned long long ull; } value;
};

status nvmlDeviceGetFieldValues(device handle, int count, struct field *fields) {
    status failed = check("nvmlDeviceGetFieldValues", handle);
    if (failed) return failed;
    for (int i = 0; i < count; i++) {
        struct field *field = &fields[i];
        const char *what = "none";
        double value, width = 0;
        if (field->id == 82) what = "mem_temp";
        if (field->id == 197) what = "pcie_tx";
        if (field->id == 198) what = "pcie_rx";
        if (field->id == 138 && field->scope == 0xFFFFFFFF) what = "nvlink_tx_kib";
        if (field->id == 139 && field->scope == 0xFFFFFFFF) what = "nvlink_rx_kib";
        if (!figure(handle, what, &value)) {
            field->result = NOT_SUPPORTED;
            continue;
        }
        field->result = OK;
        figure(handle, "counter_bits", &width);
        if (width == 32 || field->id == 82) {
            field->type = 1;
            field->value.u = (unsigned)(unsigned long long)value;
        } else {
            field->type = 3;
            field->value.ull = (unsigned long long)value;
        }
    }
    return OK;
}

status nvmlDeviceGetMigMode(device handle, unsigned *current, unsigned *pending) {
    double value;
    status failed = check("nvmlDeviceGetMigMode", handle);
    if (failed) return failed;
    *current = *pending = (unsigned)figure(handle, "mig", &value);
    return OK;
}

status nvmlDeviceGetMaxMigDeviceCount(device handle, unsigned *count) {
    (void)handle;
    *count = 7;
    return OK;
}

status nvmlDeviceGetMigDeviceHandleByIndex(device handle, unsigned index, device *found) {
    double value;
    if (!figure(handle, "mig", &value) || index >= value) return NOT_FOUND;
    *found = (device)((size_t)handle + 1 + index);
    return OK;
}

status nvmlDeviceGetGpuInstanceId(device handle, unsigned *id) {
    *id = (unsigned)mig_of(handle) + 7;
    return OK;
}

status nvmlDeviceGetComputeInstanceId(device handle, unsigned *id) {
    (void)handle;
    *id = 0;
    return OK;
}

/* Performance counters of Hopper and later: a sample remembers whose it is. */
struct support { unsigned version, supported; };

status nvmlGpmQueryDeviceSupport(device handle, struct support *support) {
    double value = 0;
    status failed = check("nvmlGpmQueryDeviceSupport", handle);
    if (failed) return failed;
    if (support->version != 1) return 25;
    figure(handle, "gpm", &value);
    support->supported = (unsigned)value;
    return OK;
}

status nvmlGpmSampleAlloc(device **sample) {
    *sample = calloc(1, sizeof **sample);
    return OK;
}

status nvmlGpmSampleFree(device *sample) {
    free(sample);
    return OK;
}

status nvmlGpmSampleGet(device handle, device *sample) {
    status failed = check("nvmlGpmSampleGet", handle);
    *sample = handle;
    return failed;
}

status nvmlGpmMigSampleGet(device handle, unsigned instance, device *sample) {
    *sample = (device)((size_t)handle + 1 + (instance - 7));
    return check("nvmlGpmMigSampleGet", handle);
}

struct metric { unsigned id; int result; double value; char *info[3]; };
struct metrics { unsigned version, count; device *first, *second; struct metric metrics[333]; };

status nvmlGpmMetricsGet(struct metrics *asked) {
    if (asked->version != 1) return 25;
    if (!*asked->first || *asked->first != *asked->second) return INVALID;
    for (unsigned i = 0; i < asked->count; i++) {
        struct metric *metric = &asked->metrics[i];
        const char *what = metric->id == 2 ? "sm_active" : metric->id == 5 ? "tensor_active"
                         : metric->id == 10 ? "dram_active" : metric->id == 1 ? "graphics_active" : "none";
        metric->result = figure(*asked->second, what, &metric->value) ? OK : NOT_SUPPORTED;
    }
    return OK;
}

#endif
