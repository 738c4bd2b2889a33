/* The streams, events and written words of the fake CUDA driver. */
#include "fake_cuda.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ENTRY(type, name, ...)                                                                     \
    __attribute__((visibility("default"))) type name(__VA_ARGS__);                                 \
    __attribute__((visibility("default"))) type name(__VA_ARGS__)

enum { INVALID_CONTEXT = 201, NOT_READY = 600, MOST_WRITES = 4096 };

struct stream {
    int64_t busy_until_ns;
    bool captures;
};

struct event {
    int64_t done_ns; /* 0: never recorded */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int the_context;
static _Thread_local void *context;
static atomic_uint strays;
static struct {
    const char *name;
    unsigned count;
} calls[32];

static struct {
    _Atomic uint32_t *to;
    uint32_t value;
    int64_t due_ns;
} writes[MOST_WRITES]; /* a ring, in the order of one stream */
static size_t writes_added, writes_done;
static bool writes_run;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The lock held. */
static void count_call(const char *name)
{
    size_t i = 0;
    while (calls[i].name && strcmp(calls[i].name, name) != 0)
        i++;
    calls[i].name = name;
    calls[i].count++;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#define BEGIN(name)                                                                                \
    do {                                                                                           \
        pthread_mutex_lock(&lock);                                                                 \
        count_call(name);                                                                          \
        pthread_mutex_unlock(&lock);                                                               \
        if (!context) {                                                                            \
            strays++;                                                                              \
            return INVALID_CONTEXT;                                                                \
        }                                                                                          \
    } while (0)

/* ---- what tests ask ---- */

ENTRY(void *, fake_cuda_stream, void)
{
    context = &the_context;
    return calloc(1, sizeof(struct stream));
}

ENTRY(int64_t, fake_cuda_work, void *to, double seconds)
{
    struct stream *stream = to;
    pthread_mutex_lock(&lock);
    stream->busy_until_ns = later(stream->busy_until_ns, now_ns()) + (int64_t)(1e9 * seconds);
    int64_t until_ns = stream->busy_until_ns;
    pthread_mutex_unlock(&lock);
    return until_ns;
}

ENTRY(void, fake_cuda_capture, void *to, bool captures)
{
    ((struct stream *)to)->captures = captures;
}

ENTRY(unsigned, fake_cuda_calls, const char *name)
{
    unsigned count = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; calls[i].name; i++)
        if (strcmp(calls[i].name, name) == 0)
            count = calls[i].count;
    pthread_mutex_unlock(&lock);
    return count;
}

ENTRY(unsigned, fake_cuda_strays, void)
{
    return strays;
}

/* ---- contexts and streams ---- */

ENTRY(int, cuCtxGetCurrent, void **current)
{
    *current = context;
    return 0;
}

ENTRY(int, cuCtxSetCurrent, void *current)
{
    context = current;
    return 0;
}

ENTRY(int, cuStreamIsCapturing, void *stream, int *status)
{
    BEGIN("cuStreamIsCapturing");
    *status = ((struct stream *)stream)->captures;
    return 0;
}

/* ---- events ---- */

ENTRY(int, cuEventCreate, void **event, unsigned flags)
{
    (void)flags;
    BEGIN("cuEventCreate");
    *event = calloc(1, sizeof(struct event));
    return 0;
}

ENTRY(int, cuEventDestroy_v2, void *event)
{
    BEGIN("cuEventDestroy_v2");
    free(event);
    return 0;
}

ENTRY(int, cuEventRecord, void *event, void *stream)
{
    BEGIN("cuEventRecord");
    pthread_mutex_lock(&lock);
    ((struct event *)event)->done_ns = later(((struct stream *)stream)->busy_until_ns, now_ns());
    pthread_mutex_unlock(&lock);
    return 0;
}

ENTRY(int, cuEventQuery, void *event)
{
    BEGIN("cuEventQuery");
    pthread_mutex_lock(&lock);
    const int64_t done_ns = ((struct event *)event)->done_ns;
    pthread_mutex_unlock(&lock);
    return done_ns <= now_ns() ? 0 : NOT_READY;
}

ENTRY(int, cuEventElapsedTime, float *ms, void *begin, void *end)
{
    BEGIN("cuEventElapsedTime");
    pthread_mutex_lock(&lock);
    *ms =
        (float)(1e-6 * (double)(((struct event *)end)->done_ns - ((struct event *)begin)->done_ns));
    pthread_mutex_unlock(&lock);
    return 0;
}

/* ---- words ---- */

static void *write_words(void *unused)
{
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (writes_done < writes_added && writes[writes_done % MOST_WRITES].due_ns <= now_ns()) {
            atomic_store(writes[writes_done % MOST_WRITES].to,
                         writes[writes_done % MOST_WRITES].value);
            writes_done++;
        }
        pthread_mutex_unlock(&lock);
        nanosleep(&(struct timespec){0, 50000}, NULL);
    }
    return NULL;
}

ENTRY(int, cuMemHostAlloc, void **at, size_t bytes, unsigned flags)
{
    (void)flags;
    BEGIN("cuMemHostAlloc");
    *at = calloc(1, bytes);
    return 0;
}

ENTRY(int, cuMemFreeHost, void *at)
{
    BEGIN("cuMemFreeHost");
    pthread_mutex_lock(&lock); /* the GPU writes no more */
    writes_done = writes_added;
    pthread_mutex_unlock(&lock);
    free(at);
    return 0;
}

ENTRY(int, cuMemHostGetDevicePointer_v2, unsigned long long *at, void *host, unsigned flags)
{
    (void)flags;
    BEGIN("cuMemHostGetDevicePointer_v2");
    *at = (unsigned long long)(uintptr_t)host;
    return 0;
}

ENTRY(int, cuStreamWriteValue32_v2, void *stream, unsigned long long at, uint32_t value,
      unsigned flags)
{
    (void)flags;
    BEGIN("cuStreamWriteValue32_v2");
    pthread_mutex_lock(&lock);
    if (!writes_run) {
        pthread_t thread;
        writes_run = pthread_create(&thread, NULL, write_words, NULL) == 0;
        pthread_detach(thread);
    }
    writes[writes_added % MOST_WRITES].to = (_Atomic uint32_t *)(uintptr_t)at;
    writes[writes_added % MOST_WRITES].value = value;
    writes[writes_added++ % MOST_WRITES].due_ns =
        later(((struct stream *)stream)->busy_until_ns, now_ns());
    pthread_mutex_unlock(&lock);
    return 0;
}
