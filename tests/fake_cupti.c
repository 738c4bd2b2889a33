/*
 * A fake CUPTI, for $ERGON_CUPTI: each number that is pushed launches kernels, which last until it
 * is popped; a copy and a fill follow at the flush. $ERGON_FAKE_CUPTI is a list of words:
 * "version=N", "kernels=N" of each number (= 1), "drop=N" records at the end, "refuse" to record.
 *
 * As the real one it answers with an error where the order of calls is wrong: clock, callbacks,
 * kinds.
 */
#include <cupti.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY __attribute__((visibility("default"))) CUptiResult CUPTIAPI

enum { DEPTH = 64, KINDS = 256 };

static CUpti_TimestampCallbackFunc now;
static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static char enabled[KINDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t *buffer;
static size_t size, valid, dropped;
static uint32_t correlation;
static struct {
    uint64_t number, start;
} open_numbers[DEPTH];
static size_t depth;

static long word(const char *name, long none)
{
    const char *text = getenv("ERGON_FAKE_CUPTI"), *at = text ? strstr(text, name) : NULL;
    return !at ? none : at[strlen(name)] == '=' ? atol(at + strlen(name) + 1) : 1;
}

static void hand_over(void)
{
    if (buffer)
        complete(NULL, 0, buffer, size, valid);
    buffer = NULL;
    size = valid = 0;
}

static void put(const void *record, size_t bytes)
{
    size_t most_records;
    if (buffer && valid + bytes > size)
        hand_over();
    if (!buffer)
        request(&buffer, &size, &most_records);
    if (!buffer || bytes > size) {
        dropped++;
        return;
    }
    memcpy(buffer + valid, record, bytes);
    valid += bytes;
}

static void put_kernel(uint64_t number, uint64_t start, uint64_t end)
{
    static const char *const names[] = {"fake_gemm_0", "fake_gemm_1", "fake_gemm_2", "fake_gemm_3"};
    CUpti_ActivityExternalCorrelation external = {
        .kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
        .externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0,
        .externalId = number,
        .correlationId = ++correlation,
    };
    CUpti_ActivityKernel10 kernel = {.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                     .start = start,
                                     .end = end,
                                     .deviceId = 0,
                                     .streamId = 7,
                                     .gridX = 132,
                                     .gridY = 2,
                                     .gridZ = 1,
                                     .blockX = 256,
                                     .blockY = 1,
                                     .blockZ = 1,
                                     .correlationId = correlation,
                                     .name = names[number % 4]};
    put(&external, sizeof external);
    put(&kernel, sizeof kernel);
}

ENTRY cuptiGetVersion(uint32_t *version)
{
    *version = (uint32_t)word("version", CUPTI_API_VERSION);
    return CUPTI_SUCCESS;
}

ENTRY cuptiGetResultString(CUptiResult result, const char **text)
{
    *text = result == CUPTI_ERROR_INVALID_OPERATION ? "CUPTI_ERROR_INVALID_OPERATION"
                                                    : "CUPTI_ERROR_OTHER";
    return CUPTI_SUCCESS;
}

ENTRY cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc callback)
{
    now = callback;
    return CUPTI_SUCCESS;
}

ENTRY cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc give,
                                     CUpti_BuffersCallbackCompleteFunc take)
{
    request = give;
    complete = take;
    return now ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_OPERATION;
}

ENTRY cuptiActivityEnable(CUpti_ActivityKind kind)
{
    if (word("refuse", 0))
        return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    if (!now || !request || kind == CUPTI_ACTIVITY_KIND_KERNEL || (unsigned)kind >= KINDS)
        return CUPTI_ERROR_INVALID_OPERATION;
    enabled[kind] = 1;
    return CUPTI_SUCCESS;
}

ENTRY cuptiActivityDisable(CUpti_ActivityKind kind)
{
    pthread_mutex_lock(&lock);
    if (kind == CUPTI_ACTIVITY_KIND_MEMCPY && enabled[kind]) { /* the end of a recording */
        const uint64_t end = now();
        CUpti_ActivityMemcpy6 copy = {.kind = CUPTI_ACTIVITY_KIND_MEMCPY,
                                      .copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_DTOH,
                                      .bytes = 4096,
                                      .start = end - 10,
                                      .end = end,
                                      .streamId = 8,
                                      .correlationId = ++correlation};
        CUpti_ActivityMemcpyPtoP4 peer = {.kind = CUPTI_ACTIVITY_KIND_MEMCPY2,
                                          .copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP,
                                          .bytes = 512,
                                          .start = end - 10,
                                          .end = end,
                                          .streamId = 9,
                                          .correlationId = ++correlation};
        CUpti_ActivityMemset4 fill = {.kind = CUPTI_ACTIVITY_KIND_MEMSET,
                                      .bytes = 64,
                                      .start = end - 5,
                                      .end = end,
                                      .streamId = 7,
                                      .correlationId = ++correlation};
        CUpti_ActivityKernel10 unfinished = {.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                             .name = "unfinished"};
        CUpti_ActivityOverhead3 overhead = {
            .kind = CUPTI_ACTIVITY_KIND_OVERHEAD, .start = 1000, .end = 3500};
        put(&copy, sizeof copy);
        put(&peer, sizeof peer);
        put(&fill, sizeof fill);
        put(&unfinished, sizeof unfinished);
        put(&overhead, sizeof overhead);
        dropped += (size_t)word("drop", 0);
    }
    enabled[(unsigned)kind % KINDS] = 0;
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}

ENTRY cuptiActivityFlushAll(uint32_t flag)
{
    if (flag != CUPTI_ACTIVITY_FLAG_FLUSH_FORCED)
        return CUPTI_ERROR_INVALID_PARAMETER;
    pthread_mutex_lock(&lock);
    hand_over();
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}

static size_t bytes_of(const CUpti_Activity *record)
{
    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
        return sizeof(CUpti_ActivityExternalCorrelation);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
        return sizeof(CUpti_ActivityMemcpyPtoP4);
    case CUPTI_ACTIVITY_KIND_MEMSET:
        return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
        return sizeof(CUpti_ActivityOverhead3);
    default:
        return sizeof(CUpti_ActivityKernel10);
    }
}

ENTRY cuptiActivityGetNextRecord(uint8_t *bytes, size_t count, CUpti_Activity **record)
{
    uint8_t *at = *record ? (uint8_t *)*record + bytes_of(*record) : bytes;
    if (at >= bytes + count)
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (void *)at;
    return CUPTI_SUCCESS;
}

ENTRY cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *count)
{
    (void)context;
    (void)stream;
    *count = dropped;
    dropped = 0;
    return CUPTI_SUCCESS;
}

ENTRY cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t number)
{
    if (kind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 || depth == DEPTH)
        return CUPTI_ERROR_INVALID_PARAMETER;
    open_numbers[depth].number = number;
    open_numbers[depth++].start = now();
    return CUPTI_SUCCESS;
}

ENTRY cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t *last)
{
    if (kind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 || depth == 0)
        return CUPTI_ERROR_QUEUE_EMPTY;
    depth--;
    *last = open_numbers[depth].number;
    pthread_mutex_lock(&lock);
    const uint64_t end = now();
    for (long i = word("kernels", 1); i > 0; i--)
        put_kernel(*last, open_numbers[depth].start, end);
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}
