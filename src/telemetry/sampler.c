/* Sampler: reads every GPU in a thread of its own, and hands the samples to one writer. */
#include "telemetry/sampler.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"

#include <assert.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    RING = 256,              /* items; 12 s at 50 ms, more than a second at 5 ms */
    WRITER_SHARE = 4,        /* checks of the writer per fast period */
    CLOSE_NS = 5000000,      /* between close looks */
    PATIENCE_NS = 1000000000 /* for threads that hang when the sampler stops */
};

#define BIT(metric) (UINT64_C(1) << (metric))
static const uint64_t close_metrics = BIT(ERG_METRIC_ENERGY) | BIT(ERG_METRIC_POWER_INSTANT);
/* The metrics that describe the ends of a window. */
static const uint64_t look_metrics =
    BIT(ERG_METRIC_ENERGY) | BIT(ERG_METRIC_POWER_INSTANT) | BIT(ERG_METRIC_SM_CLOCK) |
    BIT(ERG_METRIC_REASONS) | BIT(ERG_METRIC_TEMPERATURE) | BIT(ERG_METRIC_MEMORY_TEMPERATURE) |
    BIT(ERG_METRIC_VIOLATION_POWER) | BIT(ERG_METRIC_VIOLATION_THERMAL);

/*
 * One GPU's thread and its ring. Shared by the sampler and the thread, so that a thread which hangs
 * in the driver can be left behind: the last of the two frees it.
 */
struct gpu_lane {
    atomic_int owners;
    struct erg_gpus *gpus;
    size_t gpu;
    struct erg_sampler_options options;
    pthread_t thread;

    pthread_mutex_t lock; /* protects the following; never held during a call of the driver */
    pthread_cond_t wake;  /* on the monotonic clock */
    bool stop, look;      /* look: one close look now */
    int64_t close_until_ns;

    /* Single producer, single consumer: the counts only grow; item i is at i % RING. */
    struct erg_sampler_item items[RING];
    atomic_size_t put, taken;

    atomic_uint_fast64_t samples, missed, dropped;
    atomic_int_fast64_t busy_since_ns, cpu_ns;
    atomic_bool lost, ended;
};

struct erg_sampler {
    struct erg_sampler_sink sink;
    struct gpu_lane **lanes;
    size_t count;
    int64_t writer_period_ns;
    pthread_t writer;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
    bool writes; /* the writer's thread was started */
};

struct erg_sampler_options erg_sampler_options_default(void)
{
    return (struct erg_sampler_options){
        .period_ns = {[ERG_COST_FAST] = 50000000,
                      [ERG_COST_MEDIUM] = 250000000,
                      [ERG_COST_SLOW] = 1000000000},
    };
}

static int64_t thread_cpu_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

/* ---- a GPU's thread ---- */

static void release_lane(struct gpu_lane *lane)
{
    if (atomic_fetch_sub(&lane->owners, 1) > 1)
        return;
    erg_gpus_close(lane->gpus);
    pthread_cond_destroy(&lane->wake);
    pthread_mutex_destroy(&lane->lock);
    free(lane);
}

/* The next task of a lane's thread. */
struct lane_task {
    bool stop, tick; /* tick: of the schedule */
    bool closely;    /* close looks are due */
    int64_t scheduled_ns;
    uint64_t metrics;
};

/* The schedule of a lane: ticks of the fast period since its origin. */
struct schedule {
    int64_t origin_ns, fast_ns;
    int64_t next, next_medium, next_slow; /* tick numbers */
    int64_t medium_every, slow_every;
};

static int64_t tick_ns(const struct schedule *schedule, int64_t tick)
{
    return schedule->origin_ns + tick * schedule->fast_ns;
}

/* Sleeps until something is due: a tick, a close look, a request to look now, or the end. */
static struct lane_task wait_for_task(struct gpu_lane *lane, const struct schedule *schedule,
                                      int64_t closed_ns)
{
    struct lane_task task = {.scheduled_ns = tick_ns(schedule, schedule->next)};
    pthread_mutex_lock(&lane->lock);
    for (;;) {
        int64_t now_ns = erg_now_ns(), due_ns = tick_ns(schedule, schedule->next);
        int64_t close_ns = closed_ns + CLOSE_NS;
        bool closely = now_ns < lane->close_until_ns;
        task.closely = closely;
        task.stop = lane->stop;
        task.tick = now_ns >= due_ns;
        if (closely && now_ns >= close_ns)
            task.metrics |= close_metrics;
        if (lane->look)
            task.metrics |= look_metrics;
        lane->look = false;
        if (task.stop || task.tick || task.metrics) {
            if (!task.tick)
                task.scheduled_ns = now_ns;
            break;
        }
        erg_condition_wait(&lane->wake, &lane->lock,
                           closely && close_ns < due_ns ? close_ns : due_ns);
    }
    pthread_mutex_unlock(&lane->lock);
    return task;
}

static uint64_t due_metrics(const struct gpu_lane *lane, struct schedule *schedule)
{
    uint64_t metrics = erg_gpu_metrics(lane->gpus, lane->gpu, ERG_COST_FAST);
    if (schedule->next >= schedule->next_medium) {
        metrics |= erg_gpu_metrics(lane->gpus, lane->gpu, ERG_COST_MEDIUM);
        schedule->next_medium =
            (schedule->next / schedule->medium_every + 1) * schedule->medium_every;
    }
    if (schedule->next >= schedule->next_slow) {
        metrics |= erg_gpu_metrics(lane->gpus, lane->gpu, ERG_COST_SLOW);
        schedule->next_slow = (schedule->next / schedule->slow_every + 1) * schedule->slow_every;
    }
    return metrics;
}

static void push(struct gpu_lane *lane, const struct erg_sampler_item *item)
{
    size_t put = atomic_load_explicit(&lane->put, memory_order_relaxed);
    if (put - atomic_load_explicit(&lane->taken, memory_order_acquire) == RING) {
        atomic_fetch_add(&lane->dropped, 1);
        return;
    }
    assert(put - atomic_load_explicit(&lane->taken, memory_order_relaxed) < RING);
    lane->items[put % RING] = *item;
    atomic_store_explicit(&lane->put, put + 1, memory_order_release);
    atomic_fetch_add(&lane->samples, 1);
}

static struct schedule schedule_of(const struct gpu_lane *lane)
{
    const int64_t *period_ns = lane->options.period_ns;
    int64_t fast_ns = period_ns[ERG_COST_FAST], spread = (int64_t)erg_gpus_count(lane->gpus);
    int64_t medium_every = period_ns[ERG_COST_MEDIUM] / fast_ns;
    int64_t slow_every = period_ns[ERG_COST_SLOW] / fast_ns;
    return (struct schedule){
        /* GPUs are read at staggered times: the driver serves callers one by one. */
        .origin_ns = erg_now_ns() + fast_ns * (int64_t)lane->gpu / spread,
        .fast_ns = fast_ns,
        .medium_every = medium_every > 1 ? medium_every : 1,
        .slow_every = slow_every > 1 ? slow_every : 1,
    };
}

/*
 * On a busy host a normal thread waits for milliseconds after waking up. This one needs little
 * time, but on time, so it asks for real-time priority; without permission it stays normal.
 */
static void come_first(bool first)
{
    pthread_setschedparam(pthread_self(), first ? SCHED_RR : SCHED_OTHER,
                          &(struct sched_param){.sched_priority = first});
}

static void *run_lane(void *argument)
{
    struct gpu_lane *lane = argument;
    bool first = false;
    struct schedule schedule = schedule_of(lane);
    struct erg_sampler_item item = {.gpu = lane->gpu};
    int64_t closed_ns = 0;
    for (;;) {
        struct lane_task task = wait_for_task(lane, &schedule, closed_ns);
        if (task.stop)
            break;
        if (first == task.closely) /* it reads all the time then and must not starve others */
            come_first(first = !task.closely);
        if (task.tick)
            task.metrics |= due_metrics(lane, &schedule);
        atomic_store(&lane->busy_since_ns, erg_now_ns());
        item.scheduled_ns = task.scheduled_ns;
        erg_gpu_read(lane->gpus, lane->gpu, task.metrics, &item.sample);
        atomic_store(&lane->busy_since_ns, 0);
        closed_ns = item.sample.start_ns;
        if (task.tick) {
            int64_t passed = (item.sample.end_ns - schedule.origin_ns) / schedule.fast_ns;
            int64_t next = passed > schedule.next ? passed + 1 : schedule.next + 1;
            atomic_fetch_add(&lane->missed, (uint_fast64_t)(next - schedule.next - 1));
            assert(next > schedule.next);
            schedule.next = next;
        }
        push(lane, &item);
        atomic_store(&lane->cpu_ns, thread_cpu_ns());
        if (item.sample.lost) {
            atomic_store(&lane->lost, true);
            break;
        }
    }
    atomic_store(&lane->ended, true);
    release_lane(lane);
    return NULL;
}

/* ---- the writer ---- */

static void drain(struct erg_sampler *sampler)
{
    for (size_t i = 0; i < sampler->count; i++) {
        struct gpu_lane *lane = sampler->lanes[i];
        size_t taken = atomic_load_explicit(&lane->taken, memory_order_relaxed);
        size_t put = atomic_load_explicit(&lane->put, memory_order_acquire);
        assert(put - taken <= RING);
        for (; taken < put; taken++) {
            sampler->sink.put(sampler->sink.context, &lane->items[taken % RING]);
            atomic_store_explicit(&lane->taken, taken + 1, memory_order_release);
        }
    }
    if (sampler->sink.idle)
        sampler->sink.idle(sampler->sink.context);
}

static void *run_writer(void *argument)
{
    struct erg_sampler *sampler = argument;
    for (bool stop = false; !stop;) {
        int64_t until_ns = erg_now_ns() + sampler->writer_period_ns;
        pthread_mutex_lock(&sampler->lock);
        while (!sampler->stop && erg_condition_wait(&sampler->wake, &sampler->lock, until_ns))
            ;
        stop = sampler->stop;
        pthread_mutex_unlock(&sampler->lock);
        drain(sampler);
    }
    return NULL;
}

/* ---- start and stop ---- */

static int start_lane(struct erg_sampler *sampler, struct erg_gpus *gpus, size_t gpu,
                      const struct erg_sampler_options *options, struct erg_error *err)
{
    struct gpu_lane *lane = erg_xcalloc(1, sizeof *lane);
    atomic_init(&lane->owners, 2);
    lane->gpus = erg_gpus_retain(gpus);
    lane->gpu = gpu;
    lane->options = *options;
    pthread_mutex_init(&lane->lock, NULL);
    erg_condition_init(&lane->wake);
    int reason = erg_thread_start(&lane->thread, run_lane, lane);
    if (reason != 0) {
        atomic_store(&lane->owners, 1);
        release_lane(lane);
        return erg_fail(err, ERG_FAILED, "starting to sample GPU %zu: no thread for it (%s)", gpu,
                        strerror(reason));
    }
    sampler->lanes[sampler->count++] = lane;
    return 0;
}

int erg_sampler_start(struct erg_sampler **out, struct erg_gpus *gpus,
                      const struct erg_sampler_options *options,
                      const struct erg_sampler_sink *sink, struct erg_error *err)
{
    if (options->period_ns[ERG_COST_FAST] < 1000000)
        return erg_fail(err, ERG_FAILED,
                        "sampling GPUs every %lld ns: expected a period of 1 ms or more",
                        (long long)options->period_ns[ERG_COST_FAST]);
    struct erg_sampler *sampler = erg_xcalloc(1, sizeof *sampler);
    size_t count = erg_gpus_count(gpus);
    sampler->sink = *sink;
    sampler->lanes = erg_xcalloc(count, sizeof *sampler->lanes);
    sampler->writer_period_ns = options->period_ns[ERG_COST_FAST] / WRITER_SHARE;
    pthread_mutex_init(&sampler->lock, NULL);
    erg_condition_init(&sampler->wake);
    int result = 0;
    for (size_t gpu = 0; result == 0 && gpu < count; gpu++)
        result = start_lane(sampler, gpus, gpu, options, err);
    int reason = result == 0 ? erg_thread_start(&sampler->writer, run_writer, sampler) : 0;
    if (reason != 0)
        result = erg_fail(err, ERG_FAILED, "starting to sample GPUs: no thread to write (%s)",
                          strerror(reason));
    sampler->writes = result == 0;
    if (result == 0)
        *out = sampler;
    else
        erg_sampler_stop(sampler);
    return result;
}

void erg_sampler_look_closely(struct erg_sampler *sampler, int64_t until_ns)
{
    for (size_t i = 0; i < sampler->count; i++) {
        struct gpu_lane *lane = sampler->lanes[i];
        pthread_mutex_lock(&lane->lock);
        if (until_ns > lane->close_until_ns)
            lane->close_until_ns = until_ns;
        lane->look = true;
        pthread_cond_signal(&lane->wake);
        pthread_mutex_unlock(&lane->lock);
    }
}

void erg_sampler_stats(const struct erg_sampler *sampler, size_t gpu,
                       struct erg_sampler_stats *stats)
{
    assert(gpu < sampler->count);
    const struct gpu_lane *lane = sampler->lanes[gpu];
    int64_t busy_since_ns = atomic_load(&lane->busy_since_ns);
    *stats = (struct erg_sampler_stats){
        .samples = atomic_load(&lane->samples),
        .missed = atomic_load(&lane->missed),
        .dropped = atomic_load(&lane->dropped),
        .busy_ns = busy_since_ns ? erg_now_ns() - busy_since_ns : 0,
        .cpu_ns = atomic_load(&lane->cpu_ns),
        .lost = atomic_load(&lane->lost),
    };
}

/* Joins a thread that ends in time, and leaves any other behind. */
static void end_lane(struct gpu_lane *lane, int64_t until_ns)
{
    struct timespec pause = {0, 1000000};
    while (!atomic_load(&lane->ended) && erg_now_ns() < until_ns)
        nanosleep(&pause, NULL);
    if (atomic_load(&lane->ended))
        pthread_join(lane->thread, NULL);
    else
        pthread_detach(lane->thread);
}

void erg_sampler_stop(struct erg_sampler *sampler)
{
    if (!sampler)
        return;
    for (size_t i = 0; i < sampler->count; i++) {
        struct gpu_lane *lane = sampler->lanes[i];
        pthread_mutex_lock(&lane->lock);
        lane->stop = true;
        pthread_cond_signal(&lane->wake);
        pthread_mutex_unlock(&lane->lock);
    }
    int64_t until_ns = erg_now_ns() + PATIENCE_NS;
    for (size_t i = 0; i < sampler->count; i++)
        end_lane(sampler->lanes[i], until_ns);
    pthread_mutex_lock(&sampler->lock);
    sampler->stop = true;
    pthread_cond_signal(&sampler->wake);
    pthread_mutex_unlock(&sampler->lock);
    if (sampler->writes)
        pthread_join(sampler->writer, NULL);
    for (size_t i = 0; i < sampler->count; i++)
        release_lane(sampler->lanes[i]);
    pthread_cond_destroy(&sampler->wake);
    pthread_mutex_destroy(&sampler->lock);
    free(sampler->lanes);
    free(sampler);
}
