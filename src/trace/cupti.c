/* Kernels recorded by CUPTI. */
#include "trace/cupti.h"

#if ERGON_CUPTI

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"

#include <cupti.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { BUFFERS = 8, BUFFER_BYTES = 4 << 20, BUFFER_ALIGNMENT = 64 };

/*
 * CONCURRENT_KERNEL, because KERNEL would serialise kernels. External correlations belong to
 * records of driver calls.
 */
static const CUpti_ActivityKind kinds[] = {
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
    CUPTI_ACTIVITY_KIND_DRIVER,
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
    CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMCPY2,
    CUPTI_ACTIVITY_KIND_MEMSET,
    CUPTI_ACTIVITY_KIND_OVERHEAD,
};
enum { KINDS = sizeof kinds / sizeof *kinds };

struct cupti_table {
    CUptiResult (*get_version)(uint32_t *);
    CUptiResult (*get_result_string)(CUptiResult, const char **);
    CUptiResult (*register_timestamps)(CUpti_TimestampCallbackFunc);
    CUptiResult (*register_callbacks)(CUpti_BuffersCallbackRequestFunc,
                                      CUpti_BuffersCallbackCompleteFunc);
    CUptiResult (*enable)(CUpti_ActivityKind);
    CUptiResult (*disable)(CUpti_ActivityKind);
    CUptiResult (*flush_all)(uint32_t);
    CUptiResult (*next_record)(uint8_t *, size_t, CUpti_Activity **);
    CUptiResult (*dropped_records)(CUcontext, uint32_t, size_t *);
    CUptiResult (*push)(CUpti_ExternalCorrelationKind, uint64_t);
    CUptiResult (*pop)(CUpti_ExternalCorrelationKind, uint64_t *);
};

static const struct {
    const char *name;
    size_t offset;
} entries[] = {
    {"cuptiGetVersion", offsetof(struct cupti_table, get_version)},
    {"cuptiGetResultString", offsetof(struct cupti_table, get_result_string)},
    {"cuptiActivityRegisterTimestampCallback", offsetof(struct cupti_table, register_timestamps)},
    {"cuptiActivityRegisterCallbacks", offsetof(struct cupti_table, register_callbacks)},
    {"cuptiActivityEnable", offsetof(struct cupti_table, enable)},
    {"cuptiActivityDisable", offsetof(struct cupti_table, disable)},
    {"cuptiActivityFlushAll", offsetof(struct cupti_table, flush_all)},
    {"cuptiActivityGetNextRecord", offsetof(struct cupti_table, next_record)},
    {"cuptiActivityGetNumDroppedRecords", offsetof(struct cupti_table, dropped_records)},
    {"cuptiActivityPushExternalCorrelationId", offsetof(struct cupti_table, push)},
    {"cuptiActivityPopExternalCorrelationId", offsetof(struct cupti_table, pop)},
};

/* A buffer on its way to the writer. */
struct full_buffer {
    uint8_t *bytes;
    size_t valid;
};

/* The number under which a call was made. */
struct correlation {
    uint32_t correlation;
    uint64_t number;
};

struct erg_cupti {
    struct cupti_table table;
    bool on;
    pthread_t writer;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint8_t *memory; /* holds all buffers */
    uint8_t *free_buffers[BUFFERS];
    size_t free_count;
    struct full_buffer full[BUFFERS];
    size_t full_count;
    bool busy, ends; /* state of the writer */
    size_t dropped;

    /* Owned by the writer until the recording stops. */
    struct {
        struct erg_kernel_record *items;
        size_t count, capacity;
    } records;
    struct {
        struct correlation *items;
        size_t count, capacity;
    } correlations;
    uint64_t *numbers;
    int64_t started_ns, overhead_ns;
    struct erg_arena arena;
    const char **names; /* of kernels, by hash; `name_slots` is a power of 2 */
    size_t name_slots, name_count;
};

/* Callbacks get no client pointer. */
static struct erg_cupti *client;

static int check(const struct erg_cupti *cupti, CUptiResult status, const char *what,
                 struct erg_error *err)
{
    const char *words = NULL;
    if (status == CUPTI_SUCCESS)
        return 0;
    if (cupti->table.get_result_string(status, &words) != CUPTI_SUCCESS || !words)
        words = "not known";
    return erg_fail(err, ERG_FAILED, "CUPTI, %s: %s (%d)%s", what, words, (int)status,
                    status == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
                        ? "; another profiler is at work in this process"
                        : "");
}

/* ---- callbacks ---- */

static uint64_t CUPTIAPI timestamp(void)
{
    return (uint64_t)erg_now_ns();
}

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *most_records)
{
    struct erg_cupti *cupti = client;
    pthread_mutex_lock(&cupti->lock);
    *buffer = cupti->free_count ? cupti->free_buffers[--cupti->free_count] : NULL;
    pthread_mutex_unlock(&cupti->lock);
    *size = *buffer ? BUFFER_BYTES : 0; /* without one, CUPTI drops records and counts them */
    *most_records = 0;
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                                 size_t valid)
{
    struct erg_cupti *cupti = client;
    size_t dropped = 0;
    (void)size;
    bool counts = cupti->table.dropped_records(context, stream, &dropped) == CUPTI_SUCCESS;
    pthread_mutex_lock(&cupti->lock);
    if (counts)
        cupti->dropped += dropped;
    if (buffer && cupti->full_count < BUFFERS) {
        cupti->full[cupti->full_count++] = (struct full_buffer){buffer, valid};
        pthread_cond_broadcast(&cupti->changed);
    }
    pthread_mutex_unlock(&cupti->lock);
}

/* ---- the writer ---- */

static size_t slot_of(const struct erg_cupti *cupti, const char *name)
{
    size_t slot = XXH3_64bits(name, strlen(name)) & (cupti->name_slots - 1);
    while (cupti->names[slot] && strcmp(cupti->names[slot], name) != 0)
        slot = (slot + 1) & (cupti->name_slots - 1);
    return slot;
}

static void grow_names(struct erg_cupti *cupti)
{
    const char **old = cupti->names;
    size_t old_slots = cupti->name_slots;
    cupti->name_slots = old_slots ? 2 * old_slots : 256;
    cupti->names = erg_xcalloc(cupti->name_slots, sizeof *cupti->names);
    for (size_t i = 0; i < old_slots; i++)
        if (old[i])
            cupti->names[slot_of(cupti, old[i])] = old[i];
    free(old);
}

/* A permanent copy: the library's name goes away with the kernel's module. */
static const char *keep_name(struct erg_cupti *cupti, const char *name)
{
    if (2 * cupti->name_count >= cupti->name_slots)
        grow_names(cupti);
    size_t slot = slot_of(cupti, name ? name : "");
    if (!cupti->names[slot]) {
        cupti->names[slot] = erg_arena_strdup(&cupti->arena, name ? name : "");
        cupti->name_count++;
    }
    return cupti->names[slot];
}

static const char *copy_name(uint8_t kind)
{
    switch ((CUpti_ActivityMemcpyKind)kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
        return "Memcpy HtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
        return "Memcpy DtoH";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
        return "Memcpy DtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
        return "Memcpy PtoP";
    default:
        return "Memcpy";
    }
}

/*
 * Skips records without times, which have not ended, and those from before the start, which were
 * still in a buffer.
 */
static void add(struct erg_cupti *cupti, struct erg_kernel_record record)
{
    record.wait_ns = -1;
    if (record.start_ns >= cupti->started_ns && record.end_ns >= record.start_ns)
        ERG_PUSH(&cupti->records, items, record);
}

static void add_kernel(struct erg_cupti *cupti, const CUpti_ActivityKernel10 *kernel)
{
    add(cupti, (struct erg_kernel_record){
                   .start_ns = (int64_t)kernel->start,
                   .end_ns = (int64_t)kernel->end,
                   .name = keep_name(cupti, kernel->name),
                   .device = (int32_t)kernel->deviceId,
                   .stream = (int32_t)kernel->streamId,
                   .correlation = kernel->correlationId,
                   .grid = {kernel->gridX, kernel->gridY, kernel->gridZ},
                   .block = {kernel->blockX, kernel->blockY, kernel->blockZ},
               });
}

/* Copies and fills have the same fields under three types. */
#define ADD_MOVE(cupti, move, source_kind, move_name)                                              \
    add(cupti, (struct erg_kernel_record){.start_ns = (int64_t)(move)->start,                      \
                                          .end_ns = (int64_t)(move)->end,                          \
                                          .name = move_name,                                       \
                                          .device = (int32_t)(move)->deviceId,                     \
                                          .stream = (int32_t)(move)->streamId,                     \
                                          .source = source_kind,                                   \
                                          .correlation = (move)->correlationId,                    \
                                          .bytes = (move)->bytes})

static void add_copy(struct erg_cupti *cupti, const CUpti_ActivityMemcpy6 *copy)
{
    ADD_MOVE(cupti, copy, ERG_SOURCE_MEMCPY, copy_name(copy->copyKind));
}

static void add_peer_copy(struct erg_cupti *cupti, const CUpti_ActivityMemcpyPtoP4 *copy)
{
    ADD_MOVE(cupti, copy, ERG_SOURCE_MEMCPY, copy_name(copy->copyKind));
}

static void add_fill(struct erg_cupti *cupti, const CUpti_ActivityMemset4 *fill)
{
    ADD_MOVE(cupti, fill, ERG_SOURCE_MEMSET, "Memset");
}

static void add_correlation(struct erg_cupti *cupti, const CUpti_ActivityExternalCorrelation *one)
{
    if (one->externalKind == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0)
        ERG_PUSH(&cupti->correlations, items,
                 (struct correlation){one->correlationId, one->externalId});
}

static void read_buffer(struct erg_cupti *cupti, const struct full_buffer *full)
{
    CUpti_Activity *activity = NULL;
    while (cupti->table.next_record(full->bytes, full->valid, &activity) == CUPTI_SUCCESS) {
        const void *record = activity;
        switch (activity->kind) {
        case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
            add_kernel(cupti, record);
            break;
        case CUPTI_ACTIVITY_KIND_MEMCPY:
            add_copy(cupti, record);
            break;
        case CUPTI_ACTIVITY_KIND_MEMCPY2:
            add_peer_copy(cupti, record);
            break;
        case CUPTI_ACTIVITY_KIND_MEMSET:
            add_fill(cupti, record);
            break;
        case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
            add_correlation(cupti, record);
            break;
        case CUPTI_ACTIVITY_KIND_OVERHEAD: {
            const CUpti_ActivityOverhead3 *overhead = record;
            cupti->overhead_ns += (int64_t)(overhead->end - overhead->start);
            break;
        }
        default: /* calls of the driver */
            break;
        }
    }
}

static void *write_all(void *argument)
{
    struct erg_cupti *cupti = argument;
    pthread_mutex_lock(&cupti->lock);
    while (!cupti->ends || cupti->full_count) {
        if (!cupti->full_count) {
            pthread_cond_wait(&cupti->changed, &cupti->lock);
            continue;
        }
        const struct full_buffer full = cupti->full[0];
        cupti->full_count--;
        memmove(cupti->full, cupti->full + 1, cupti->full_count * sizeof *cupti->full);
        cupti->busy = true;
        pthread_mutex_unlock(&cupti->lock);
        read_buffer(cupti, &full);
        pthread_mutex_lock(&cupti->lock);
        cupti->free_buffers[cupti->free_count++] = full.bytes;
        cupti->busy = false;
        pthread_cond_broadcast(&cupti->changed);
    }
    pthread_mutex_unlock(&cupti->lock);
    return NULL;
}

static void wait_for_writer(struct erg_cupti *cupti)
{
    pthread_mutex_lock(&cupti->lock);
    while (cupti->busy || cupti->full_count)
        pthread_cond_wait(&cupti->changed, &cupti->lock);
    pthread_mutex_unlock(&cupti->lock);
}

/* ---- opening ---- */

static void *open_library(void)
{
    static const char *const places[] = {"lib64", "lib", "extras/CUPTI/lib64"};
    const char *const folders[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda"};
    const char *given = getenv("ERGON_CUPTI");
    struct erg_text path = {0};
    if (given)
        return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    erg_text_printf(&path, "libcupti.so.%d", CUPTI_API_VERSION / 10000);
    void *library = dlopen(path.data, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < 9 && !library; i++)
        if (folders[i / 3]) {
            path.count = 0;
            erg_text_printf(&path, "%s/%s/libcupti.so.%d", folders[i / 3], places[i % 3],
                            CUPTI_API_VERSION / 10000);
            library = dlopen(path.data, RTLD_NOW | RTLD_LOCAL);
        }
    erg_text_release(&path);
    return library;
}

static int load(struct cupti_table *table, struct erg_error *err)
{
    void *library = open_library(); /* never closed: it keeps threads */
    if (!library)
        return erg_fail(err, ERG_NO_DEVICE,
                        "opening libcupti.so.%d: not found by the system's loader "
                        "(LD_LIBRARY_PATH), in $CUDA_HOME or in /usr/local/cuda; kernels are not "
                        "recorded",
                        CUPTI_API_VERSION / 10000);
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void *entry = dlsym(library, entries[i].name);
        if (!entry)
            return erg_fail(err, ERG_NO_DEVICE, "opening CUPTI: it has no function %s",
                            entries[i].name);
        memcpy((char *)table + entries[i].offset, &entry, sizeof entry);
    }
    return 0;
}

static int check_version(const struct erg_cupti *cupti, struct erg_error *err)
{
    uint32_t version = 0;
    if (check(cupti, cupti->table.get_version(&version), "asking for its version", err) != 0)
        return -1;
    if (version != CUPTI_API_VERSION)
        return erg_fail(err, ERG_NO_DEVICE,
                        "CUPTI here has version %" PRIu32
                        ", expected %d, whose records this ergon was "
                        "built to read; kernels are not recorded",
                        version, CUPTI_API_VERSION);
    return 0;
}

static void release(struct erg_cupti *cupti)
{
    free(cupti->memory);
    free(cupti->records.items);
    free(cupti->correlations.items);
    free(cupti->numbers);
    free(cupti->names);
    erg_arena_release(&cupti->arena);
    free(cupti);
}

int erg_cupti_open(struct erg_cupti **cupti, struct erg_error *err)
{
    if (client)
        return erg_fail(err, ERG_FAILED, "CUPTI is open in this process already");
    struct erg_cupti *made = erg_xcalloc(1, sizeof *made);
    if (load(&made->table, err) != 0 || check_version(made, err) != 0) {
        release(made);
        return -1;
    }
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    made->memory = erg_xmalloc((size_t)BUFFERS * BUFFER_BYTES + BUFFER_ALIGNMENT);
    uint8_t *first =
        made->memory + BUFFER_ALIGNMENT - (size_t)((uintptr_t)made->memory % BUFFER_ALIGNMENT);
    for (size_t i = 0; i < BUFFERS; i++)
        made->free_buffers[made->free_count++] = first + i * BUFFER_BYTES;
    client = made;
    if (check(made, made->table.register_timestamps(timestamp), "setting its clock", err) != 0 ||
        check(made, made->table.register_callbacks(give_buffer, take_buffer),
              "registering for its records", err) != 0) {
        client = NULL;
        release(made);
        return -1;
    }
    int status = erg_thread_start(&made->writer, write_all, made);
    if (status != 0) {
        client = NULL;
        release(made);
        return erg_fail(err, ERG_FAILED, "starting a thread for records of kernels: %s",
                        strerror(status));
    }
    *cupti = made;
    return 0;
}

static void disable(struct erg_cupti *cupti)
{
    for (size_t i = 0; i < KINDS; i++)
        (void)cupti->table.disable(kinds[i]);
    cupti->on = false;
}

void erg_cupti_close(struct erg_cupti *cupti)
{
    if (!cupti)
        return;
    if (cupti->on)
        disable(cupti);
    (void)cupti->table.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    pthread_mutex_lock(&cupti->lock);
    cupti->ends = true;
    pthread_cond_broadcast(&cupti->changed);
    pthread_mutex_unlock(&cupti->lock);
    pthread_join(cupti->writer, NULL);
    /*
     * The library may still write to a buffer that it has kept, so the buffer stays, and so does
     * the client that callbacks use.
     */
    if (cupti->free_count < BUFFERS)
        return;
    client = NULL;
    pthread_cond_destroy(&cupti->changed);
    pthread_mutex_destroy(&cupti->lock);
    release(cupti);
}

/* ---- recording ---- */

int erg_cupti_start(struct erg_cupti *cupti, struct erg_error *err)
{
    pthread_mutex_lock(&cupti->lock);
    cupti->records.count = cupti->correlations.count = 0;
    cupti->overhead_ns = 0;
    cupti->started_ns = erg_now_ns();
    cupti->dropped = 0;
    pthread_mutex_unlock(&cupti->lock);
    cupti->on = true;
    for (size_t i = 0; i < KINDS; i++)
        if (check(cupti, cupti->table.enable(kinds[i]), "beginning to record", err) != 0) {
            disable(cupti);
            return -1;
        }
    return 0;
}

void erg_cupti_push(struct erg_cupti *cupti, uint64_t number)
{
    if (cupti && cupti->on)
        (void)cupti->table.push(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, number);
}

void erg_cupti_pop(struct erg_cupti *cupti)
{
    uint64_t ignored;
    if (cupti && cupti->on)
        (void)cupti->table.pop(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &ignored);
}

static int by_correlation(const void *left, const void *right)
{
    const struct correlation *a = left, *b = right;
    return (a->correlation > b->correlation) - (a->correlation < b->correlation);
}

static void find_numbers(struct erg_cupti *cupti)
{
    const size_t count = cupti->records.count;
    cupti->numbers = erg_xrealloc(cupti->numbers, count + 1, sizeof *cupti->numbers);
    if (cupti->correlations.count)
        qsort(cupti->correlations.items, cupti->correlations.count,
              sizeof *cupti->correlations.items, by_correlation);
    for (size_t i = 0; i < count; i++) {
        const struct correlation key = {cupti->records.items[i].correlation, 0};
        const struct correlation *found =
            cupti->correlations.count
                ? bsearch(&key, cupti->correlations.items, cupti->correlations.count, sizeof key,
                          by_correlation)
                : NULL;
        cupti->numbers[i] = found ? found->number : 0;
    }
}

int erg_cupti_stop(struct erg_cupti *cupti, struct erg_cupti_records *records,
                   struct erg_error *err)
{
    size_t dropped = 0;
    disable(cupti); /* first, so that no records follow the flush */
    int result = check(cupti, cupti->table.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED),
                       "taking its records", err);
    wait_for_writer(cupti);
    if (result != 0)
        return -1;
    if (cupti->table.dropped_records(NULL, 0, &dropped) == CUPTI_SUCCESS)
        cupti->dropped += dropped;
    if (cupti->dropped)
        return erg_fail(err, ERG_FAILED,
                        "CUPTI dropped %zu records of kernels, since its %d buffers of %d MiB were "
                        "full: the trace would lack them",
                        cupti->dropped, BUFFERS, BUFFER_BYTES >> 20);
    find_numbers(cupti);
    *records = (struct erg_cupti_records){.items = cupti->records.items,
                                          .numbers = cupti->numbers,
                                          .count = cupti->records.count,
                                          .overhead_ns = cupti->overhead_ns};
    return 0;
}

#else

int erg_cupti_open(struct erg_cupti **cupti, struct erg_error *err)
{
    (void)cupti;
    return erg_fail(
        err, ERG_NO_DEVICE,
        "kernels are recorded by CUPTI, but this ergon was built on a machine where the header "
        "cupti.h of CUDA 13 was not found");
}

void erg_cupti_close(struct erg_cupti *cupti)
{
    (void)cupti;
}

int erg_cupti_start(struct erg_cupti *cupti, struct erg_error *err)
{
    (void)cupti;
    return erg_fail(err, ERG_NO_DEVICE, "this ergon was built without CUPTI");
}

void erg_cupti_push(struct erg_cupti *cupti, uint64_t number)
{
    (void)cupti;
    (void)number;
}

void erg_cupti_pop(struct erg_cupti *cupti)
{
    (void)cupti;
}

int erg_cupti_stop(struct erg_cupti *cupti, struct erg_cupti_records *records,
                   struct erg_error *err)
{
    (void)cupti;
    (void)records;
    return erg_fail(err, ERG_NO_DEVICE, "this ergon was built without CUPTI");
}

#endif
