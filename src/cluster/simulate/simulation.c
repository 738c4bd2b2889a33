/* The simulator: its loop over events, and the calls of the policy. */
#include "cluster/simulate/simulation_internal.h"

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/memory.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

static void end_job(struct simulator *sim, int id)
{
    struct erg_scheduler *scheduler = sim->scheduler;
    erg_simulator_record(sim, ERG_RECORD_END, id, -1);
    erg_scheduler_end(scheduler, id);
    erg_cluster_meter_update(&sim->meter, id);
    sim->meter.results[id].ended_s = scheduler->now_s;
}

/* Handles jobs that end, resume, or whose share of speed changes. */
static void pass_job_events(struct simulator *sim)
{
    double now_s = sim->scheduler->now_s;
    while (erg_event_heap_next(&sim->heap) <= now_s) {
        int id = erg_event_heap_pop(&sim->heap);
        if (sim->scheduler->accounting->end(&sim->scheduler->works[id]) <= now_s)
            end_job(sim, id);
        else
            erg_simulator_refresh(sim, id);
    }
}

static double next_submission(const struct simulator *sim)
{
    if (sim->submitted == sim->scheduler->jobs_count)
        return INFINITY;
    assert(sim->submitted < sim->scheduler->jobs_count);
    return sim->submission_s[sim->order[sim->submitted]];
}

static void submit_job(struct simulator *sim, int id)
{
    struct erg_scheduler *scheduler = sim->scheduler;
    struct erg_cluster_job *job = &scheduler->jobs[id];
    const struct erg_trace_job *request = job->request;
    double asked_s = request->submit_s - sim->simulation->trace->first_submit_s;
    job->submitted_s = scheduler->now_s;
    job->iterations = fmax(1, floor(request->iterations * sim->simulation->work));
    job->deadline_s = request->deadline_s - request->submit_s + asked_s;
    bool runs = erg_scheduler_arrive(scheduler, id);
    erg_cluster_meter_submit(&sim->meter, id);
    erg_simulator_record(sim, ERG_RECORD_SUBMIT, id, -1);
    if (!runs)
        erg_simulator_note_unserved(sim, id, ERG_UNSERVED_NOWHERE);
}

static void pass_submissions(struct simulator *sim)
{
    while (next_submission(sim) <= sim->scheduler->now_s)
        submit_job(sim, sim->order[sim->submitted++]);
}

/* Calls the policy if it requested a call now. */
static int call_policy(struct simulator *sim, struct erg_error *err)
{
    struct erg_scheduler *scheduler = sim->scheduler;
    size_t every = sim->simulation->reopened_every;
    double next_s = fmin(erg_course_next_round(scheduler), erg_course_next_wake(scheduler));
    if (next_s > scheduler->now_s && !(scheduler->course->events & scheduler->policy->events))
        return 0;
    if (every > 0 && sim->calls++ % every == 0)
        scheduler->course->stale = true;
    if (erg_course_call(scheduler, err) != 0)
        return -1;
    return erg_simulator_book(sim, err);
}

static void take_sample(struct simulator *sim)
{
    const struct erg_scheduler *scheduler = sim->scheduler;
    if (!sim->simulation->keep_samples)
        return;
    ERG_PUSH(&sim->samples, items,
             (struct erg_cluster_sample){
                 .at_s = scheduler->now_s,
                 .running = scheduler->running.count,
                 .waiting = scheduler->waiting.count,
                 .busy_gpus = sim->meter.busy_gpus,
                 .down_gpus = sim->meter.down_gpus,
                 .off_gpus = sim->meter.off_gpus,
                 .samples_per_s = sim->meter.samples_per_s,
                 .power_w = sim->meter.power_w,
             });
}

/* Returns true if only rounds, changes of the tariff and requested calls remain, and the policy's
 * last call did nothing. */
static bool stuck(const struct simulator *sim)
{
    return sim->scheduler->course->rested && !sim->scheduler->course->events &&
           sim->scheduler->running.count == 0 && isinf(next_submission(sim)) &&
           isinf(erg_simulator_next_outage(sim));
}

static int run(struct simulator *sim, struct erg_error *err)
{
    struct erg_scheduler *scheduler = sim->scheduler;
    double until_s = sim->simulation->until_s;
    for (size_t steps = 0;; steps++) {
        double next_s = fmin(fmin(erg_event_heap_next(&sim->heap), erg_simulator_next_outage(sim)),
                             next_submission(sim));
        double tariff_s = erg_course_next_tariff(scheduler);
        if (!stuck(sim))
            next_s = fmin(fmin(next_s, erg_course_next_wake(scheduler)),
                          fmin(erg_course_next_round(scheduler), tariff_s));
        if (isinf(next_s) && isinf(until_s))
            break; /* the simulation does not continue only to switch nodes off */
        next_s = fmin(next_s, erg_event_heap_next(&sim->switching));
        if (next_s >= until_s || isinf(next_s))
            break;
        if (steps % 1024 == 0 && erg_interrupt_check(err) != 0)
            return -1;
        assert(next_s >= scheduler->now_s); /* time never goes back */
        scheduler->now_s = next_s;
        erg_cluster_meter_advance(&sim->meter, next_s);
        pass_job_events(sim);
        erg_simulator_pass_outages(sim);
        pass_submissions(sim);
        scheduler->course->events |= next_s == tariff_s ? ERG_EVENT_TARIFF : 0;
        if (erg_simulator_book(sim, err) != 0 || call_policy(sim, err) != 0)
            return -1;
        erg_simulator_switch_off(sim);
        erg_simulator_throttle(sim);
        take_sample(sim);
    }
    if (!isinf(until_s)) {
        scheduler->now_s = until_s;
        erg_cluster_meter_advance(&sim->meter, until_s);
        if (sim->scheduler->accounting->round_s <= 0) /* otherwise the last round has not ended */
            pass_job_events(sim);                     /* jobs that end at this very moment have
                                                       * ended */
    }
    return 0;
}

struct trace_submission {
    double at_s;
    int job;
};

static int compare_submissions(const void *a, const void *b)
{
    const struct trace_submission *x = a, *y = b;
    if (x->at_s != y->at_s)
        return x->at_s < y->at_s ? -1 : 1;
    return x->job - y->job;
}

/* Sorts jobs by submission, equal ones in the order of the file. */
static void sort_submissions(struct simulator *sim)
{
    const struct erg_job_trace *trace = sim->simulation->trace;
    struct trace_submission *items = erg_xcalloc(trace->count, sizeof *items);
    double previous_s = 0;
    for (size_t i = 0; i < trace->count; i++) {
        previous_s = sim->scheduler->accounting->submission(
            trace->jobs[i].submit_s - trace->first_submit_s, previous_s);
        items[i] = (struct trace_submission){previous_s, (int)i};
        sim->submission_s[i] = previous_s;
    }
    qsort(items, trace->count, sizeof *items, compare_submissions);
    for (size_t i = 0; i < trace->count; i++)
        sim->order[i] = items[i].job;
    free(items);
}

static void release(struct simulator *sim)
{
    erg_cluster_meter_release(&sim->meter);
    erg_event_heap_release(&sim->heap);
    erg_event_heap_release(&sim->switching);
    erg_scheduler_free(sim->scheduler);
    free(sim->submission_s);
    free(sim->order);
    free(sim->outages.begins);
    free(sim->outages.ends);
    free(sim->draws.items);
    free(sim->records.items);
    free(sim->slices.items);
    free(sim->samples.items);
    free(sim->unserved.items);
}

static int check_power_cap(const struct erg_simulation *simulation, struct erg_error *err)
{
    double idle_w = erg_fleet_idle_power(simulation->fleet);
    if (isinf(simulation->power_cap_w))
        return 0;
    if (simulation->power_cap_w <= idle_w)
        return erg_fail(err, ERG_FAILED,
                        "a power cap of %g W cannot be kept: the cluster's GPUs draw %g W idle",
                        simulation->power_cap_w, idle_w);
    return 0;
}

int erg_simulate(struct erg_simulated *result, const struct erg_simulation *simulation,
                 struct erg_error *err)
{
    double began_s = erg_cpu_seconds();
    if (check_power_cap(simulation, err) != 0)
        return -1;
    size_t count = simulation->trace->count;
    struct simulator sim = {
        .simulation = simulation,
        .scheduler = erg_scheduler_new(simulation->fleet, simulation->trace, simulation->speeds,
                                       simulation->policy, simulation->accounting),
        .submission_s = erg_xcalloc(count, sizeof *sim.submission_s),
        .order = erg_xcalloc(count, sizeof *sim.order),
    };
    sim.scheduler->power_cap_w = simulation->power_cap_w;
    sim.scheduler->tariff = simulation->tariff;
    erg_cluster_meter_init(&sim.meter, simulation, sim.scheduler);
    erg_event_heap_init(&sim.heap, count);
    erg_event_heap_init(&sim.switching, (size_t)simulation->fleet->nodes);
    sort_submissions(&sim);
    erg_simulator_sort_outages(&sim.outages, simulation);
    int status = run(&sim, err);
    if (status == 0) {
        erg_simulator_note_waiting(&sim);
        *result = (struct erg_simulated){.jobs_count = count,
                                         .records = sim.records.items,
                                         .records_count = sim.records.count,
                                         .slices = sim.slices.items,
                                         .samples = sim.samples.items,
                                         .samples_count = sim.samples.count,
                                         .unserved = sim.unserved.items,
                                         .unserved_count = sim.unserved.count};
        sim.records.items = NULL;
        sim.slices.items = NULL;
        sim.samples.items = NULL;
        sim.unserved.items = NULL;
        erg_cluster_meter_finish(&sim.meter, result);
        result->summary.cpu_s = erg_cpu_seconds() - began_s;
    }
    release(&sim);
    return status;
}

void erg_simulated_release(struct erg_simulated *result)
{
    free(result->jobs);
    free(result->families);
    free(result->records);
    free(result->slices);
    free(result->samples);
    free(result->unserved);
    *result = (struct erg_simulated){0};
}
