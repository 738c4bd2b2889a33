/* Marks by events and by memory writes of CUDA's driver. */
#include "hooks/gpu_marks.h"

#include "base/memory.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CUDA_NOT_READY = 600, CAPTURE_NONE = 0, SIDES = 2 };

struct erg_gpu_marks {
    void *library;
    bool memory, prepared;
    void *context;
    void *events[ERG_GPU_MARKS][SIDES];
    uint32_t (*words)[SIDES];    /* [slots], written by the GPU */
    unsigned long long words_at; /* their address on the GPU */

    int (*get_current)(void **context);
    int (*set_current)(void *context);
    int (*is_capturing)(void *stream, int *status);
    int (*event_create)(void **event, unsigned flags);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_query)(void *event);
    int (*event_elapsed)(float *ms, void *begin, void *end);
    int (*host_alloc)(void **at, size_t bytes, unsigned flags);
    int (*host_free)(void *at);
    int (*device_pointer)(unsigned long long *at, void *host, unsigned flags);
    int (*write_value)(void *stream, unsigned long long at, uint32_t value, unsigned flags);
};

static int find_calls(struct erg_gpu_marks *marks, const char *path, struct erg_error *err)
{
    const struct {
        const char *name;
        void *call;
        bool events, memory; /* needed for events, for memory marks */
    } calls[] = {
        {"cuCtxGetCurrent", &marks->get_current, true, true},
        {"cuCtxSetCurrent", &marks->set_current, true, true},
        {"cuStreamIsCapturing", &marks->is_capturing, true, true},
        {"cuEventCreate", &marks->event_create, true, false},
        {"cuEventDestroy_v2", &marks->event_destroy, true, false},
        {"cuEventRecord", &marks->event_record, true, false},
        {"cuEventQuery", &marks->event_query, true, false},
        {"cuEventElapsedTime", &marks->event_elapsed, true, false},
        {"cuMemHostAlloc", &marks->host_alloc, false, true},
        {"cuMemFreeHost", &marks->host_free, false, true},
        {"cuMemHostGetDevicePointer_v2", &marks->device_pointer, false, true},
        {"cuStreamWriteValue32_v2", &marks->write_value, false, true},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *symbol = dlsym(marks->library, calls[i].name);
        if (!symbol && (marks->memory ? calls[i].memory : calls[i].events))
            return erg_fail(err, ERG_NO_DEVICE,
                            "marking passes on the GPU: '%s' lacks %s, expected a newer driver",
                            path, calls[i].name);
        memcpy(calls[i].call, &symbol, sizeof symbol);
    }
    return 0;
}

int erg_gpu_marks_open(struct erg_gpu_marks **out, bool memory, struct erg_error *err)
{
    const char *named = getenv("ERGON_LIBCUDA"), *path = named ? named : "libcuda.so.1";
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return erg_fail(
            err, ERG_NO_DEVICE,
            "marking passes on the GPU: '%s' cannot be opened, expected NVIDIA's driver", path);
    struct erg_gpu_marks *marks = erg_xcalloc(1, sizeof *marks);
    marks->library = library;
    marks->memory = memory;
    if (find_calls(marks, path, err) != 0) {
        erg_gpu_marks_close(marks);
        return -1;
    }
    *out = marks;
    return 0;
}

void erg_gpu_marks_close(struct erg_gpu_marks *marks)
{
    void *before = NULL;
    if (!marks)
        return;
    /* If the context is gone, so are its events. */
    if (marks->context && marks->get_current(&before) == 0 &&
        marks->set_current(marks->context) == 0) {
        for (size_t slot = 0; slot < ERG_GPU_MARKS; slot++)
            for (int side = 0; side < SIDES; side++)
                if (marks->events[slot][side])
                    marks->event_destroy(marks->events[slot][side]);
        if (marks->words)
            marks->host_free(marks->words);
        marks->set_current(before);
    }
    dlclose(marks->library);
    free(marks);
}

static int make_events(struct erg_gpu_marks *marks)
{
    int result = 0;
    for (size_t slot = 0; slot < ERG_GPU_MARKS; slot++)
        for (int side = 0; side < SIDES && result == 0; side++)
            result = marks->event_create(&marks->events[slot][side], 0);
    return result;
}

static int make_words(struct erg_gpu_marks *marks)
{
    const size_t bytes = ERG_GPU_MARKS * sizeof *marks->words;
    void *words;
    int result = marks->host_alloc(&words, bytes, 2 /* mapped */);
    if (result != 0)
        return result;
    marks->words = words;
    memset(words, 0, bytes);
    return marks->device_pointer(&marks->words_at, words, 0);
}

int erg_gpu_marks_prepare(struct erg_gpu_marks *marks, struct erg_error *err)
{
    if (marks->prepared)
        return 0;
    int result = marks->get_current(&marks->context);
    if (result != 0 || !marks->context)
        return erg_fail(err, ERG_NO_DEVICE,
                        "marking passes on the GPU: the calling thread has no CUDA context, "
                        "expected the stream's");
    result = marks->memory ? make_words(marks) : make_events(marks);
    if (result != 0)
        return erg_fail(err, ERG_NO_DEVICE,
                        "marking passes on the GPU: the driver refuses with CUDA's error %d",
                        result);
    marks->prepared = true;
    return 0;
}

bool erg_gpu_marks_captures(struct erg_gpu_marks *marks, void *stream)
{
    int status = CAPTURE_NONE;
    return marks->is_capturing(stream, &status) != 0 || status != CAPTURE_NONE;
}

int erg_gpu_marks_record(struct erg_gpu_marks *marks, size_t slot, enum erg_gpu_mark_side side,
                         uint32_t round, void *stream)
{
    if (!marks->memory)
        return marks->event_record(marks->events[slot][side], stream) == 0 ? 0 : -1;
    const unsigned long long at = marks->words_at + (slot * SIDES + side) * sizeof(uint32_t);
    return marks->write_value(stream, at, round, 0) == 0 ? 0 : -1;
}

bool erg_gpu_marks_reached(struct erg_gpu_marks *marks, size_t slot, enum erg_gpu_mark_side side,
                           uint32_t round)
{
    static _Thread_local const void *entered; /* the marks whose context this thread has */
    if (marks->memory)
        return __atomic_load_n(&marks->words[slot][side], __ATOMIC_ACQUIRE) == round;
    if (entered != marks && marks->set_current(marks->context) == 0)
        entered = marks;
    return marks->event_query(marks->events[slot][side]) != CUDA_NOT_READY;
}

double erg_gpu_marks_seconds(struct erg_gpu_marks *marks, size_t slot)
{
    float ms;
    if (marks->memory || marks->event_elapsed(&ms, marks->events[slot][ERG_MARK_BEGIN],
                                              marks->events[slot][ERG_MARK_END]) != 0)
        return (double)NAN;
    return 1e-3 * (double)ms;
}
