/* The timeline of a step over all ranks, as a Chrome trace. */
#include "train/run/session_internal.h"

#include "base/log.h"
#include "base/memory.h"
#include "io/trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The contribution of a rank. */
struct rank_spans {
    uint64_t count;
    int64_t origin_ns;
    char machine[ERG_LAUNCH_MACHINE_BYTES];
    int32_t stage, data, context, tensor;
};

static void add_span(struct erg_trace *trace, int rank, double shift_s,
                     const struct erg_timeline_span *span)
{
    struct erg_text name = {0};
    struct erg_trace_arg args[] = {{"microbatch", NULL, span->microbatch},
                                   {"chunk", NULL, span->chunk},
                                   {"mode", erg_mode_name((enum erg_mode)span->mode), 0},
                                   {"planned_mhz", NULL, span->clock_mhz}};
    const size_t count = span->microbatch < 0 ? 0 : span->clock_mhz ? 4 : 2;
    const char *kind = erg_span_name((enum erg_span_kind)span->kind);
    if (span->microbatch >= 0)
        erg_text_printf(&name, "%s %d", kind, span->microbatch);
    else
        erg_text_add(&name, kind);
    erg_trace_span(trace, rank, span->lane, name.data, kind, shift_s + span->begin_s,
                   span->end_s - span->begin_s, args, count);
    erg_text_release(&name);
}

/* Ranks begin at about the same moment; on one machine the clock gives their difference. */
static double shift_of(const struct rank_spans *ranks, int world, int rank)
{
    int64_t first_ns = ranks[rank].origin_ns;
    for (int i = 0; i < world; i++)
        if (strcmp(ranks[i].machine, ranks[rank].machine) == 0 && ranks[i].origin_ns < first_ns)
            first_ns = ranks[i].origin_ns;
    return 1e-9 * (double)(ranks[rank].origin_ns - first_ns);
}

static void add_rank(struct erg_trace *trace, int rank, double shift_s,
                     const struct rank_spans *about, const struct erg_timeline_span *spans)
{
    struct erg_text name = {0};
    bool used[ERG_LANES] = {false};
    erg_text_printf(&name, "rank %d: stage %d, data %d, context %d, tensor %d", rank, about->stage,
                    about->data, about->context, about->tensor);
    erg_trace_name_process(trace, rank, name.data);
    for (uint64_t i = 0; i < about->count; i++) {
        used[spans[i].lane] = true;
        add_span(trace, rank, shift_s, &spans[i]);
    }
    for (int lane = 0; lane < ERG_LANES; lane++)
        if (used[lane])
            erg_trace_name_thread(trace, rank, lane, erg_lane_name((enum erg_lane)lane));
    erg_text_release(&name);
}

/* As with the page, a failure to write the trace gives a warning. */
static void write_trace(const struct erg_train *train, uint64_t step,
                        const struct rank_spans *ranks, const struct erg_timeline_span *spans,
                        size_t most)
{
    struct erg_text path = {0};
    struct erg_error err;
    struct erg_trace *trace = erg_trace_new();
    for (int rank = 0; rank < train->env.world; rank++)
        add_rank(trace, rank, shift_of(ranks, train->env.world, rank), &ranks[rank],
                 spans + (size_t)rank * most);
    erg_text_printf(&path, "%s/trace-%08" PRIu64 ".json", train->folder, step);
    if (erg_trace_write(trace, path.data, &err) != 0)
        erg_log(ERG_LOG_WARNING, "%s", err.message);
    erg_trace_free(trace);
    erg_text_release(&path);
}

/* World call: the spans of all ranks, [world, *most]; free them. */
static int gather(const struct erg_train *train, const struct rank_spans *own,
                  const struct erg_timeline_span *spans, struct rank_spans *ranks,
                  struct erg_timeline_span **all, size_t *most, struct erg_error *err)
{
    size_t world = (size_t)train->env.world;
    *most = own->count;
    if (erg_rendezvous_all_gather(train->rendezvous, own, sizeof *own, ranks,
                                  ERG_RENDEZVOUS_PATIENCE_S, err) != 0)
        return -1;
    for (size_t i = 0; i < world; i++)
        *most = ranks[i].count > *most ? ranks[i].count : *most;
    size_t bytes = *most * sizeof **all;
    struct erg_timeline_span *padded = erg_xcalloc(*most + 1, sizeof *padded);
    *all = erg_xcalloc(world * *most + 1, sizeof **all);
    memcpy(padded, spans, own->count * sizeof *spans);
    int result = erg_rendezvous_all_gather(train->rendezvous, padded, bytes, *all,
                                           ERG_RENDEZVOUS_PATIENCE_S, err);
    free(padded);
    return result;
}

bool erg_train_traces(const struct erg_train *train, uint64_t step)
{
    uint64_t every = (uint64_t)train->job->training->trace_every;
    return every && step % every == 0;
}

int erg_train_trace_begin(struct erg_train *train, struct erg_error *err)
{
    return erg_trainer_trace_begin(train->trainer, erg_train_kernels_begin(train), err);
}

int erg_train_trace(struct erg_train *train, uint64_t step, struct erg_error *err)
{
    struct erg_timeline_span *spans = NULL, *all = NULL;
    size_t count = 0, most = 0;
    int64_t origin_ns = 0;
    int result = erg_trainer_trace_end(train->trainer, &spans, &count, &origin_ns, err);
    if (result == 0)
        erg_train_kernels_end(train, step, spans, count);
    struct rank_spans own = {.count = count, .origin_ns = origin_ns};
    erg_launch_machine(own.machine);
    struct rank_spans *ranks = erg_xcalloc((size_t)train->env.world, sizeof *ranks);
    if (result == 0) {
        const struct erg_ranks *place = erg_trainer_ranks(train->trainer);
        own.stage = (int32_t)place->stage;
        own.data = (int32_t)place->data;
        own.context = (int32_t)place->context;
        own.tensor = (int32_t)place->tensor;
        erg_timeline_waits(spans, count, &train->bubble_s, &train->gradients_s);
        train->traced = step;
        result = gather(train, &own, spans, ranks, &all, &most, err);
    }
    if (result == 0 && erg_train_tells(train) && train->folder)
        write_trace(train, step, ranks, all, most);
    free(ranks);
    free(all);
    free(spans);
    return result;
}
