/* Sets clocks when the previous instruction has ended. */
#include "train/engine/clock_controller.h"

#include "base/clock.h"
#include "base/memory.h"
#include "telemetry/clock_thread.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

static const int64_t look_ns = 200000;

struct request {
    int clock_mhz;
    uint64_t due;
    int64_t asked_ns;
};

/* Requests in order of their dues, in a growing ring. */
struct request_ring {
    struct request *items;
    size_t first, count, capacity;
};

struct erg_clock_controller {
    struct erg_clock_controller_options options;
    struct erg_clock_thread *thread;

    /* Used by the thread only. */
    int64_t looked_ns; /* time of the latest check; requests waiting then were not due */
    int due_mhz;       /* the latest due clock; 0: none */

    pthread_mutex_t lock; /* protects all below */
    struct request_ring ring;
    int last_mhz; /* the latest requested clock; 0: none */
    uint64_t last_due;
    uint64_t asked, skipped, superseded;
};

/* ---- requests ---- */

static void push(struct request_ring *ring, struct request request)
{
    if (ring->count == ring->capacity) {
        size_t capacity = ring->capacity ? 2 * ring->capacity : 64;
        struct request *items = erg_xcalloc(capacity, sizeof *items);
        for (size_t i = 0; i < ring->count; i++)
            items[i] = ring->items[(ring->first + i) % ring->capacity];
        free(ring->items);
        *ring = (struct request_ring){items, 0, ring->count, capacity};
    }
    ring->items[(ring->first + ring->count++) % ring->capacity] = request;
}

/* Removes all due requests; gives the latest one and returns their number. */
static size_t take_due(struct request_ring *ring, uint64_t finished, struct request *latest)
{
    size_t taken = 0;
    while (ring->count > 0 && ring->items[ring->first].due <= finished) {
        *latest = ring->items[ring->first];
        ring->first = (ring->first + 1) % ring->capacity;
        ring->count--;
        taken++;
    }
    return taken;
}

/* ---- the thread ---- */

static void look(void *context, int64_t now_ns, struct erg_clock_due *due)
{
    struct erg_clock_controller *controller = context;
    struct request latest;
    const int64_t before_ns = controller->looked_ns;
    pthread_mutex_lock(&controller->lock);
    controller->looked_ns = now_ns;
    size_t taken =
        take_due(&controller->ring, __atomic_load_n(controller->options.finished, __ATOMIC_ACQUIRE),
                 &latest);
    if (taken) {
        controller->superseded += taken - 1;
        controller->skipped += latest.clock_mhz == controller->due_mhz;
        controller->due_mhz = latest.clock_mhz;
        due->clock_mhz = latest.clock_mhz;
        due->since_ns = latest.asked_ns > before_ns ? latest.asked_ns : before_ns;
    }
    if (controller->ring.count)
        due->again_ns = now_ns + look_ns;
    pthread_mutex_unlock(&controller->lock);
}

/* ---- the rank ---- */

int erg_clock_controller_open(struct erg_clock_controller **out,
                              const struct erg_clock_controller_options *options,
                              struct erg_error *err)
{
    struct erg_clock_controller *controller = erg_xcalloc(1, sizeof *controller);
    struct erg_error why = {0};
    controller->options = *options;
    pthread_mutex_init(&controller->lock, NULL);
    const struct erg_clock_thread_options thread = {
        .gpus = options->gpus,
        .gpu = options->gpu,
        .due = look,
        .context = controller,
        .required = options->required,
        .otherwise = "training continues at the GPU's own clocks",
    };
    if (!options->finished)
        erg_fail(&why, ERG_NO_DEVICE,
                 "setting clocks by instruction: this device does not report which instruction it "
                 "has finished, expected a GPU");
    int result = options->finished
                     ? erg_clock_thread_open(&controller->thread, &thread, err)
                     : erg_clock_thread_refuse(&controller->thread, &thread, &why, err);
    if (result == 0) {
        *out = controller;
        return 0;
    }
    erg_clock_controller_close(controller, NULL);
    return -1;
}

int erg_clock_controller_close(struct erg_clock_controller *controller, struct erg_error *err)
{
    if (!controller)
        return 0;
    int result = erg_clock_thread_close(controller->thread, err);
    pthread_mutex_destroy(&controller->lock);
    free(controller->ring.items);
    free(controller);
    return result;
}

int erg_clock_controller_ask(struct erg_clock_controller *controller, int clock_mhz, uint64_t due,
                             struct erg_error *err)
{
    bool wakes = false;
    assert(clock_mhz >= 0);
    const bool required = controller->options.required;
    const bool refused = erg_clock_thread_refused(controller->thread, required ? err : NULL);
    pthread_mutex_lock(&controller->lock);
    assert(due >= controller->last_due);
    controller->last_due = due;
    controller->asked += clock_mhz != 0;
    if (refused) {
        controller->ring.count = 0;
    } else if (clock_mhz == controller->last_mhz) {
        controller->skipped += clock_mhz != 0;
    } else if (clock_mhz != 0) {
        controller->last_mhz = clock_mhz;
        push(&controller->ring, (struct request){clock_mhz, due, erg_now_ns()});
        wakes = controller->ring.count == 1; /* while others wait, the thread checks by itself */
    }
    pthread_mutex_unlock(&controller->lock);
    if (wakes)
        erg_clock_thread_wake(controller->thread);
    return refused && required ? -1 : 0;
}

void erg_clock_controller_read(struct erg_clock_controller *controller,
                               struct erg_clock_numbers *numbers)
{
    struct erg_clock_thread_numbers thread;
    pthread_mutex_lock(&controller->lock);
    erg_clock_thread_read(controller->thread, &thread);
    *numbers = (struct erg_clock_numbers){
        .asked = controller->asked,
        .set = thread.set,
        .skipped = controller->skipped,
        .superseded = controller->superseded,
        .call_mean_s = thread.call_mean_s,
        .call_worst_s = thread.call_worst_s,
        .late_mean_s = thread.late_mean_s,
        .late_worst_s = thread.late_worst_s,
        .refused = erg_clock_thread_refused(controller->thread, NULL),
    };
    pthread_mutex_unlock(&controller->lock);
}
