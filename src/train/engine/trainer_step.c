/* Trainer: one step, which all ranks take together. */
#include "train/engine/trainer_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

/* ---- batches ---- */

/* Reads this rank's data of the next batch. */
static int read_batch(struct erg_trainer *trainer, struct erg_batches *batches,
                      struct erg_train_batch *batch, struct erg_error *err)
{
    size_t microbatches = (size_t)trainer->job->layout.microbatches;
    size_t count = trainer->inputs / microbatches;
    bool reads = trainer->request.embedding || trainer->request.head;
    struct erg_batch_share share = {trainer->ranks.data, trainer->ranks.context};
    if (erg_batches_next(batches, &share, reads ? batch->ids : NULL, batch->targets,
                         &batch->counted, err) != 0)
        return -1;
    for (size_t i = 0; i < microbatches && reads; i++)
        erg_ops_embedding_order(count, batch->ids + i * count, batch->order + i * count);
    return 0;
}

/* Reads the batch of the next step, on the reader's thread. */
static void read_ahead(void *context)
{
    struct erg_trainer *trainer = context;
    trainer->read_result =
        read_batch(trainer, &trainer->batches, &trainer->read[trainer->turn], &trainer->read_error);
}

static void begin_reading(struct erg_trainer *trainer)
{
    if (!trainer->reader)
        trainer->reader = erg_reader_open(read_ahead, trainer);
    trainer->has_read = true;
    erg_reader_begin(trainer->reader);
}

/*
 * World call: the batch of this step. If it was read ahead, all ranks know whether a read has
 * failed.
 */
static int take_batch(struct erg_trainer *trainer, struct erg_train_batch **batch,
                      struct erg_error *err)
{
    bool agrees = trainer->has_read && !trainer->unreadable;
    trainer->waited_s = 0;
    if (!trainer->has_read) {
        begin_reading(trainer);
        trainer->waited_s = erg_reader_wait(trainer->reader);
    }
    if (trainer->read_result != 0)
        *err = trainer->read_error;
    if (!agrees && erg_rendezvous_agree(trainer->options.rendezvous, trainer->read_result, err))
        return -1;
    *batch = &trainer->read[trainer->turn];
    trainer->turn = !trainer->turn;
    trainer->has_read = false;
    return 0;
}

static int load_batch(struct erg_trainer *trainer, const struct erg_train_batch *batch,
                      struct erg_error *err)
{
    trainer->host_scalars =
        (struct erg_step_scalars){.scale = batch->counted ? 1 / (float)batch->counted : 0};
    return erg_trainer_copy(trainer, trainer->ids, batch->ids,
                            3 * trainer->inputs * sizeof(int32_t), err) ||
                   erg_trainer_copy(trainer, trainer->scalars, &trainer->host_scalars,
                                    sizeof trainer->host_scalars, err)
               ? -1
               : 0;
}

int erg_trainer_load(struct erg_trainer *trainer, struct erg_batches *batches, uint64_t *targets,
                     struct erg_error *err)
{
    struct erg_train_batch *batch = &trainer->read[!trainer->turn]; /* the other one waits */
    if (read_batch(trainer, batches, batch, err) || load_batch(trainer, batch, err))
        return -1;
    *targets = batch->counted;
    return 0;
}

/* ---- the step ---- */

int erg_trainer_read_scalars(struct erg_trainer *trainer, struct erg_error *err)
{
    return erg_trainer_copy_now(trainer, &trainer->host_scalars, trainer->scalars,
                                sizeof trainer->host_scalars, err) ||
                   erg_passes_wait(trainer->passes, err)
               ? -1
               : 0;
}

static int run_passes(struct erg_trainer *trainer, double *squares, struct erg_error *err)
{
    struct erg_stage_listener reads = erg_optimizer_reads(trainer->optimizer);
    struct erg_stage_listener adds = erg_optimizer_adds(trainer->optimizer);
    if (erg_stage_clear_gradients(trainer->stage, trainer->stream, err) ||
        erg_passes_run(trainer->passes, trainer->microbatches, &reads, &adds, err))
        return -1;
    return erg_trainer_read_scalars(trainer, err) ||
                   erg_optimizer_squares(trainer->optimizer, squares, err)
               ? -1
               : 0;
}

static void add_report(struct erg_rank_report *all, const struct erg_rank_report *one)
{
    all->loss += one->loss;
    all->squares += one->squares;
    if (one->targets > all->targets)
        all->targets = one->targets;
    if (one->signal && (!all->signal || (all->signal < 0 && one->signal > all->signal)))
        all->signal = one->signal; /* requests are negative */
    all->unreadable = all->unreadable || one->unreadable;
    all->waited_s = fmax(all->waited_s, one->waited_s);
    all->writes = all->writes || one->writes;
    all->busy_s = all->busy_s > 0 ? fmin(all->busy_s, one->busy_s) : one->busy_s;
    if (one->plan.number)
        all->plan = one->plan;
    all->power_w += one->power_w;
}

int erg_trainer_sum_reports(struct erg_trainer *trainer, struct erg_rank_report *report,
                            struct erg_error *err)
{
    struct erg_rank_report *all = erg_xcalloc((size_t)trainer->ranks.world, sizeof *all);
    int result = erg_rendezvous_all_gather(trainer->options.rendezvous, report, sizeof *report, all,
                                           ERG_RENDEZVOUS_PATIENCE_S, err);
    *report = (struct erg_rank_report){0};
    for (int i = 0; i < trainer->ranks.world && result == 0; i++) {
        add_report(report, &all[i]);
        if (trainer->paces)
            trainer->paces[i] = all[i].pace;
    }
    free(all);
    return result;
}

static struct erg_ops_update update_of(const struct erg_trainer *trainer,
                                       const struct erg_train_step *step)
{
    const struct erg_training *training = trainer->training;
    double t = (double)(trainer->updates + 1), factor = 1;
    if (training->clip > 0)
        factor = fmin(1, training->clip / (step->gradient_norm + 1e-6));
    return (struct erg_ops_update){
        .rate = (float)step->learning_rate,
        .decay = (float)training->weight_decay,
        .beta1 = (float)training->beta1,
        .beta2 = (float)training->beta2,
        .eps = (float)training->eps,
        .correction1 = (float)(1 - pow(training->beta1, t)),
        .correction2 = (float)sqrt(1 - pow(training->beta2, t)),
        .factor = (float)factor,
    };
}

/* World call: computes the step's loss and gradients; `report` shows whether the run continues. */
static int run_batch(struct erg_trainer *trainer, const struct erg_train_batch *batch,
                     struct erg_rank_report *report, struct erg_error *err)
{
    if (load_batch(trainer, batch, err) != 0)
        return -1;
    begin_reading(trainer); /* while the device computes */
    int result = run_passes(trainer, &report->squares, err);
    trainer->waited_s += erg_reader_wait(trainer->reader);
    if (result != 0)
        return -1;
    report->waited_s = trainer->waited_s;
    report->loss = erg_trainer_own_loss(trainer);
    report->targets = batch->counted;
    report->unreadable = trainer->read_result != 0;
    report->pace.point = trainer->point;
    if (erg_passes_worked(trainer->passes, &report->pace.worked_s, err) != 0)
        return -1;
    report->writes = trainer->writer && !erg_checkpoint_written(trainer->writer);
    report->plan = trainer->wanted;
    report->power_w = trainer->power_w;
    trainer->power_w = NAN;
    report->busy_s = trainer->after_s + 1e-9 * (double)(erg_now_ns() - trainer->began_ns);
    int summed = erg_trainer_sum_reports(trainer, report, err);
    trainer->reported_ns = erg_now_ns();
    return summed;
}

/* World call: updates the weights unless the gradients are unusable. */
static int update(struct erg_trainer *trainer, const struct erg_rank_report *report,
                  struct erg_train_step *step, struct erg_error *err)
{
    bool finite = isfinite(report->squares);
    step->targets = report->targets;
    step->signal = report->signal;
    step->loss = step->targets ? report->loss : (double)NAN;
    step->gradient_norm = sqrt(report->squares);
    step->learning_rate = erg_rate_at(&trainer->rate, trainer->updates);
    step->skipped = !step->targets || !finite;
    trainer->skips = finite ? 0 : trainer->skips + 1;
    if (step->skipped)
        return 0;
    struct erg_ops_update values = update_of(trainer, step);
    step->clipped = values.factor < 1;
    if (erg_optimizer_update(trainer->optimizer, &values, err) != 0)
        return -1;
    trainer->updates++;
    return 0;
}

/* Chooses the point of the plan that this pipeline runs from the next step on. */
static int follow_straggler(struct erg_trainer *trainer, struct erg_error *err)
{
    const struct erg_plan *plan = trainer->options.plan;
    const struct erg_layout *layout = &trainer->job->layout;
    size_t point;
    if (!trainer->paces || trainer->holds)
        return 0;
    if (erg_straggler_point(&point, plan, layout, trainer->paces, trainer->ranks.data, err) != 0)
        return -1;
    if (point == trainer->point)
        return 0;
    if (trainer->ranks.stage + trainer->ranks.context + trainer->ranks.tensor == 0)
        erg_log(ERG_LOG_INFO, "pipeline %ld continues at point %zu of the plan%s",
                trainer->ranks.data, point + 1,
                point == plan->selected.point ? "" : ": another one is late");
    trainer->point = point;
    erg_pass_plan_choose(&trainer->plan, &plan->methods[plan->selected.method].points[point]);
    return 0;
}

void erg_trainer_choose(struct erg_trainer *trainer, bool follows, const char *plan_text)
{
    const struct erg_plan *plan = trainer->options.plan;
    trainer->options.plan_text = plan_text;
    trainer->holds = !follows;
    trainer->point = plan->selected.point;
    erg_pass_plan_choose(&trainer->plan,
                         &plan->methods[plan->selected.method].points[trainer->point]);
}

int erg_trainer_trace_begin(struct erg_trainer *trainer, struct erg_cupti *kernels,
                            struct erg_error *err)
{
    trainer->in_step = true; /* a failure from here on is one of this rank only */
    if (erg_trainer_wait(trainer, err) || erg_optimizer_wait(trainer->optimizer, err) ||
        erg_rendezvous_barrier(trainer->options.rendezvous, ERG_RENDEZVOUS_PATIENCE_S, err) ||
        erg_timeline_start(&trainer->timeline, kernels, trainer->stream, err))
        return -1;
    trainer->in_step = false;
    return 0;
}

int erg_trainer_trace_end(struct erg_trainer *trainer, struct erg_timeline_span **spans,
                          size_t *count, int64_t *origin_ns, struct erg_error *err)
{
    *origin_ns = trainer->timeline.origin_ns;
    trainer->in_step = true;
    if (erg_trainer_wait(trainer, err) || erg_optimizer_wait(trainer->optimizer, err) ||
        erg_timeline_stop(&trainer->timeline, spans, count, err))
        return -1;
    trainer->in_step = false;
    return 0;
}

void erg_trainer_want_pace(struct erg_trainer *trainer, struct erg_train_pace pace)
{
    trainer->wanted = pace;
}

void erg_trainer_note_power(struct erg_trainer *trainer, double power_w)
{
    trainer->power_w = power_w;
}

bool erg_trainer_is_whole(const struct erg_trainer *trainer)
{
    return !trainer->in_step;
}

int erg_trainer_step(struct erg_trainer *trainer, int signal, struct erg_train_step *step,
                     struct erg_error *err)
{
    uint64_t tokens = erg_trainer_step_tokens(trainer);
    struct erg_rank_report report = {.signal = signal};
    struct erg_train_batch *batch;
    *step = (struct erg_train_step){.step = trainer->steps + 1};
    if (trainer->skips >= ERG_TRAINER_MOST_SKIPS)
        return erg_trainer_fail_not_finite(trainer, err);
    if (take_batch(trainer, &batch, err) != 0)
        return -1;
    trainer->in_step = true;
    trainer->began_ns = erg_now_ns();
    erg_watchdog_begin(trainer->watchdog, step->step);
    int result = run_batch(trainer, batch, &report, err);
    erg_watchdog_end(trainer->watchdog);
    if (result != 0 || update(trainer, &report, step, err) || follow_straggler(trainer, err))
        return -1;
    trainer->unreadable = report.unreadable;
    trainer->after_s = 1e-9 * (double)(erg_now_ns() - trainer->reported_ns);
    trainer->steps++;
    trainer->tokens += tokens;
    trainer->samples += tokens / (uint64_t)trainer->job->layout.sequence;
    trainer->in_step = false;
    step->updates = trainer->updates;
    step->tokens = trainer->tokens;
    step->own_wait_s = trainer->waited_s;
    step->longest_wait_s = report.waited_s;
    step->pace = report.plan;
    step->busy_s = report.busy_s;
    step->power_w = report.power_w / trainer->ranks.world;
    return trainer->writer && !report.writes ? erg_trainer_commit(trainer, err) : 0;
}
