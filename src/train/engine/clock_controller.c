/* Sets clocks when the instruction before has ended. */
#include "train/engine/clock_controller.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/statistics.h"
#include "base/thread.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t look_ns = 200000;

struct request {
    int clock_mhz;
    uint64_t due;
    int64_t asked_ns;
};

/* Requests in the order of their dues, in a ring that grows. */
struct request_ring {
    struct request *items;
    size_t first, count, capacity;
};

struct erg_clock_controller {
    struct erg_clock_controller_options options;
    struct erg_clocks *clocks; /* NULL: refused from the beginning, and there is no thread */
    pthread_t thread;

    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t changed;
    bool closing;
    struct request_ring ring;
    int last_mhz; /* that was asked for; 0: none */
    uint64_t last_due;
    struct erg_clock_numbers numbers; /* but for means and worsts */
    struct erg_spread calls_s, late_s;
    bool refused;
    struct erg_error refusal;
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

/* Takes all that are due, and gives the latest one; how many they were. */
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

/* The lock held. */
static void refuse(struct erg_clock_controller *controller, const struct erg_error *why)
{
    controller->refused = true;
    controller->ring.count = 0;
    erg_fail(&controller->refusal, ERG_NO_DEVICE, "clocks: refused: %s", why->message);
    /* Who requires clocks is told by the failure; that the guardian has ended has been said. */
    if (!controller->options.required &&
        (!controller->clocks || erg_clocks_guarded(controller->clocks)))
        erg_log(ERG_LOG_WARNING, "%s; training goes on at the GPU's own clocks",
                controller->refusal.message);
}

/* The lock held, but while the driver is called. */
static void set_clock(struct erg_clock_controller *controller, const struct request *request,
                      int64_t since_ns)
{
    struct erg_error err;
    pthread_mutex_unlock(&controller->lock);
    int64_t begin_ns = erg_now_ns();
    int result =
        erg_clocks_set(controller->clocks, controller->options.gpu, request->clock_mhz, &err);
    int64_t end_ns = erg_now_ns();
    if (result != 0) /* the clock before may still hold */
        erg_clocks_reset(controller->clocks, controller->options.gpu, NULL);
    pthread_mutex_lock(&controller->lock);
    if (result != 0) {
        refuse(controller, &err);
        return;
    }
    controller->numbers.set++;
    erg_spread_add(&controller->calls_s, 1e-9 * (double)(end_ns - begin_ns));
    erg_spread_add(&controller->late_s, 1e-9 * (double)(begin_ns - since_ns));
}

static void *control(void *argument)
{
    struct erg_clock_controller *controller = argument;
    const uint64_t *finished = controller->options.finished;
    int64_t looked_ns = 0; /* what waits was not due then, unless it was asked for later */
    int set_mhz = 0;
    pthread_mutex_lock(&controller->lock);
    while (!controller->closing) {
        if (controller->ring.count == 0) {
            pthread_cond_wait(&controller->changed, &controller->lock);
            continue;
        }
        struct request latest;
        int64_t before_ns = looked_ns;
        looked_ns = erg_now_ns();
        size_t taken =
            take_due(&controller->ring, __atomic_load_n(finished, __ATOMIC_ACQUIRE), &latest);
        if (taken == 0) {
            erg_condition_wait(&controller->changed, &controller->lock, looked_ns + look_ns);
            continue;
        }
        controller->numbers.superseded += taken - 1;
        if (latest.clock_mhz == set_mhz) {
            controller->numbers.skipped++;
            continue;
        }
        set_mhz = latest.clock_mhz;
        set_clock(controller, &latest, latest.asked_ns > before_ns ? latest.asked_ns : before_ns);
    }
    pthread_mutex_unlock(&controller->lock);
    return NULL;
}

/* ---- the rank ---- */

static int open_clocks(struct erg_clock_controller *controller, struct erg_error *err)
{
    const struct erg_clock_controller_options *options = &controller->options;
    if (!options->finished)
        return erg_fail(err, ERG_NO_DEVICE,
                        "setting clocks by instruction: this device does not say which instruction "
                        "it has finished, expected a GPU");
    if (erg_clocks_open(&controller->clocks, options->gpus, err) != 0)
        return -1;
    int code = erg_clocks_try(controller->clocks, options->gpu, err);
    if (code == 0 && (code = erg_thread_start(&controller->thread, control, controller)) != 0)
        erg_fail(err, ERG_FAILED, "setting clocks by instruction: no thread (%s)", strerror(code));
    if (code == 0)
        return 0;
    erg_clocks_close(controller->clocks, NULL);
    controller->clocks = NULL;
    return -1;
}

int erg_clock_controller_open(struct erg_clock_controller **out,
                              const struct erg_clock_controller_options *options,
                              struct erg_error *err)
{
    struct erg_clock_controller *controller = erg_xcalloc(1, sizeof *controller);
    struct erg_error why;
    controller->options = *options;
    pthread_mutex_init(&controller->lock, NULL);
    erg_condition_init(&controller->changed);
    if (open_clocks(controller, &why) != 0) {
        refuse(controller, &why);
        if (options->required) {
            if (err)
                *err = controller->refusal;
            erg_clock_controller_close(controller, NULL);
            return -1;
        }
    }
    *out = controller;
    return 0;
}

int erg_clock_controller_close(struct erg_clock_controller *controller, struct erg_error *err)
{
    if (!controller)
        return 0;
    if (controller->clocks) {
        pthread_mutex_lock(&controller->lock);
        controller->closing = true;
        pthread_cond_signal(&controller->changed);
        pthread_mutex_unlock(&controller->lock);
        pthread_join(controller->thread, NULL);
    }
    int result = erg_clocks_close(controller->clocks, err);
    pthread_cond_destroy(&controller->changed);
    pthread_mutex_destroy(&controller->lock);
    free(controller->ring.items);
    free(controller);
    return result;
}

/* The lock held: whether clocks are refused. The guardian may end while nothing is set. */
static bool is_refused(struct erg_clock_controller *controller)
{
    if (!controller->refused && !erg_clocks_guarded(controller->clocks)) {
        struct erg_error gone = {0};
        erg_fail(&gone, ERG_NO_DEVICE,
                 "their guardian has ended before this run, expected it to live as long");
        refuse(controller, &gone);
    }
    return controller->refused;
}

int erg_clock_controller_ask(struct erg_clock_controller *controller, int clock_mhz, uint64_t due,
                             struct erg_error *err)
{
    int result = 0;
    bool wakes = false;
    assert(clock_mhz >= 0);
    pthread_mutex_lock(&controller->lock);
    assert(due >= controller->last_due);
    controller->last_due = due;
    controller->numbers.asked += clock_mhz != 0;
    if (is_refused(controller)) {
        if (controller->options.required)
            result = erg_fail(err, ERG_NO_DEVICE, "%s", controller->refusal.message);
    } else if (clock_mhz == controller->last_mhz) {
        controller->numbers.skipped += clock_mhz != 0;
    } else if (clock_mhz != 0) {
        controller->last_mhz = clock_mhz;
        push(&controller->ring, (struct request){clock_mhz, due, erg_now_ns()});
        wakes = controller->ring.count == 1; /* while others wait, the thread looks by itself */
    }
    pthread_mutex_unlock(&controller->lock);
    if (wakes)
        pthread_cond_signal(&controller->changed);
    return result;
}

void erg_clock_controller_read(struct erg_clock_controller *controller,
                               struct erg_clock_numbers *numbers)
{
    pthread_mutex_lock(&controller->lock);
    *numbers = controller->numbers;
    numbers->refused = is_refused(controller);
    const struct erg_spread *calls_s = &controller->calls_s, *late_s = &controller->late_s;
    numbers->call_mean_s = erg_spread_mean(calls_s);
    numbers->call_worst_s = calls_s->count ? calls_s->most : (double)NAN;
    numbers->late_mean_s = erg_spread_mean(late_s);
    numbers->late_worst_s = late_s->count ? late_s->most : (double)NAN;
    pthread_mutex_unlock(&controller->lock);
}
