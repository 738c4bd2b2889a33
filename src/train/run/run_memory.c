/* Checks that the memory of each rank fits, and finds the change that would help if not. */
#include "train/run/run_memory.h"

#include "base/memory.h"
#include "base/text.h"
#include "layout/memory/smallest_change.h"
#include "train/engine/rank_buffers.h"
#include "train/engine/rank_share.h"

#include <stdlib.h>
#include <string.h>

/* The data that ranks exchange. */
struct rank_need {
    size_t items[ERG_RANK_ITEMS];
    size_t bytes, free_bytes, host_bytes;
    int rank;
    char machine[ERG_LAUNCH_MACHINE_BYTES];
};

static int find_need(struct rank_need *need, const struct erg_run_memory_request *request,
                     struct erg_error *err)
{
    struct erg_backend *backend = request->backend;
    struct erg_rank_memory memory;
    int result = erg_rank_memory_init(&memory, request->job, backend, request->rank, err);
    memcpy(need->items, memory.items, sizeof need->items);
    need->bytes = memory.bytes;
    need->host_bytes = memory.host_bytes;
    need->rank = request->rank;
    erg_rank_memory_release(&memory);
    erg_launch_machine(need->machine);
    return result ? result : backend->table->memory_free(backend, &need->free_bytes, err);
}

/* Whether two ranks share memory: on the host those of a machine do. */
static bool shares(const struct erg_run_memory_request *request, const struct rank_need *a,
                   const struct rank_need *b)
{
    return a == b || (request->backend->shares_memory && strcmp(a->machine, b->machine) == 0);
}

static size_t bytes_with(const struct erg_run_memory_request *request,
                         const struct rank_need *needs, const struct rank_need *rank)
{
    size_t bytes = 0;
    for (int i = 0; i < request->world; i++)
        bytes += shares(request, rank, &needs[i])
                     ? needs[i].bytes + (request->backend->shares_memory ? needs[i].host_bytes : 0)
                     : 0;
    return bytes;
}

/* The sum of bytes that the ranks of a machine offload. */
static double offloaded_with(const struct erg_run_memory_request *request,
                             const struct rank_need *needs, const struct rank_need *rank)
{
    double bytes = 0;
    for (int i = 0; i < request->world; i++)
        bytes += strcmp(needs[i].machine, rank->machine) == 0 ? (double)needs[i].host_bytes : 0;
    return bytes;
}

static struct erg_ranks place_of(const struct erg_layout *layout, int rank)
{
    struct erg_ranks ranks;
    erg_ranks_place(&ranks, layout, rank);
    return ranks;
}

static int first_rank(const struct erg_layout *layout, long stage)
{
    return (int)(stage * (erg_layout_gpus(layout) / layout->pipeline));
}

/* The host memory of a node of the stage, from the job; 0: not given. */
static double host_memory_of(const struct erg_job *job, long stage)
{
    return job->kinds[job->stage_kind[stage]].nodes->host_memory_bytes;
}

size_t erg_run_memory_of(const struct erg_job *own, struct erg_backend *backend,
                         const struct erg_layout *layout)
{
    struct erg_job job = *own;
    struct erg_model model = *own->model;
    size_t most = 0;
    model.words = erg_model_words(own->model);
    model.vocab = erg_layout_vocabulary(own->model, layout->tensor);
    model.vocab_is_padded = true;
    job.model = &model;
    job.layout = *layout;
    if (erg_layout_check(layout, &model, NULL) != 0)
        return 0;
    for (long stage = 0; stage < layout->pipeline; stage++) {
        struct erg_rank_memory memory;
        int result = erg_rank_memory_init(&memory, &job, backend, first_rank(layout, stage), NULL);
        most = memory.bytes > most ? memory.bytes : most;
        erg_rank_memory_release(&memory);
        if (result != 0)
            return 0;
    }
    return most;
}

/* The most memory that the kernels of any stage of the job need; less work never needs more. */
static int find_kernels(struct erg_memory_kernels *most,
                        const struct erg_run_memory_request *request)
{
    const struct erg_layout *layout = &request->job->layout;
    *most = (struct erg_memory_kernels){.element_bytes = request->backend->element_bytes};
    for (long stage = 0; stage < layout->pipeline; stage++) {
        struct erg_memory_kernels own;
        struct erg_layer_range *chunks;
        const struct erg_ranks ranks = place_of(layout, first_rank(layout, stage));
        const struct erg_stage_options options =
            erg_rank_share(&chunks, request->job, &ranks, request->backend);
        const int result = erg_rank_kernels(&own, &options, NULL);
        free(chunks);
        if (result != 0)
            return -1;
        most->scratch_bytes =
            most->scratch_bytes > own.scratch_bytes ? most->scratch_bytes : own.scratch_bytes;
        most->optimizer_scratch_bytes = most->optimizer_scratch_bytes > own.optimizer_scratch_bytes
                                            ? most->optimizer_scratch_bytes
                                            : own.optimizer_scratch_bytes;
    }
    return 0;
}

/* The keys of the job that differ. */
static void add_keys(struct erg_text *text, const struct erg_layout *own,
                     const struct erg_layout *changed)
{
    const struct {
        const char *key;
        long before, now;
    } keys[] = {
        {"tensor", own->tensor, changed->tensor},
        {"context", own->context, changed->context},
        {"pipeline", own->pipeline, changed->pipeline},
        {"virtual_stages", own->virtual_stages, changed->virtual_stages},
        {"data", own->data, changed->data},
        {"microbatch_size", own->microbatch, changed->microbatch},
        {"microbatches", own->microbatches, changed->microbatches},
    };
    const char *comma = "";
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].before != keys[i].now) {
            erg_text_printf(text, "%s %s %ld", comma, keys[i].key, keys[i].now);
            comma = ",";
        }
    if (own->stage_recompute || own->recompute != changed->recompute) {
        erg_text_printf(text, "%s recompute %s", comma, erg_recompute_name(changed->recompute));
        comma = ",";
    }
    if (own->stage_offload || own->offload != changed->offload)
        erg_text_printf(text, "%s offload %.3g", comma, changed->offload);
}

/* Adds the smallest change with which each rank needs no more than `room`. */
static void add_change(struct erg_text *text, const struct erg_run_memory_request *request,
                       size_t room)
{
    const struct erg_job *job = request->job;
    const bool shared = request->backend->shares_memory;
    struct erg_layout plain = job->layout;
    struct erg_memory_kernels kernels;
    struct erg_error ignored;
    plain.stage_recompute = NULL;
    plain.stage_offload = NULL;
    if (shared)
        plain.offload = 0;
    struct erg_memory_room *rooms = erg_xcalloc((size_t)plain.pipeline, sizeof *rooms);
    for (long stage = 0; stage < plain.pipeline; stage++)
        rooms[stage] = (struct erg_memory_room){.gpu_bytes = (double)room,
                                                .host_bytes = host_memory_of(job, stage),
                                                .node_gpus = job->cluster.gpus_per_node};
    /* A job's own split of layers fits no other degrees. */
    const struct erg_memory_bounds bounds = {
        .rooms = rooms, .no_offload = shared, .degrees = !shared && !plain.chunk_layers};
    const struct erg_memory_request asked = {.model = job->model,
                                             .layout = &plain,
                                             .accounting = ERG_MEMORY_STATIC,
                                             .sequence_parallel = erg_job_splits_stream(job),
                                             .least_moved = job->training->offload_least_bytes,
                                             .kernels = &kernels};
    struct erg_memory_change change = {0};
    size_t bytes = 0;
    const bool searched = find_kernels(&kernels, request) == 0 &&
                          erg_memory_smallest_change(&change, &asked, &bounds, &ignored) == 0;
    if (searched && change.found)
        bytes = erg_run_memory_of(job, request->backend, &change.layout);
    if (bytes > 0 && bytes <= room) {
        erg_text_add(text, "; with");
        add_keys(text, &job->layout, &change.layout);
        if (erg_layout_gpus(&change.layout) != erg_layout_gpus(&job->layout))
            erg_text_printf(text, ", on %ld ranks,", erg_layout_gpus(&change.layout));
        erg_text_printf(text, " it would take %.3g GiB", (double)bytes / 0x1p30);
    } else if (searched && !change.found) {
        erg_text_printf(text, "; no more recomputation%s%ssmaller microbatch%s is enough",
                        shared ? "" : ", offloading", bounds.degrees ? ", " : " or ",
                        bounds.degrees ? " or larger degree" : "");
    }
    erg_memory_change_release(&change);
    free(rooms);
}

/* Adds the items, largest first, except those below a hundredth. */
static void add_items(struct erg_text *text, const struct rank_need *need)
{
    bool added[ERG_RANK_ITEMS] = {false};
    for (int n = 0; n < ERG_RANK_ITEMS; n++) {
        int largest = -1;
        for (int i = 0; i < ERG_RANK_ITEMS; i++)
            if (!added[i] && (largest < 0 || need->items[i] > need->items[largest]))
                largest = i;
        if (need->items[largest] * 100 < need->bytes)
            return;
        added[largest] = true;
        erg_text_printf(text, "%s %s %.3g", n ? "," : "", erg_rank_item_names[largest],
                        (double)need->items[largest] / 0x1p30);
    }
}

static int refuse(const struct erg_run_memory_request *request, const struct rank_need *needs,
                  const struct rank_need *rank, struct erg_error *err)
{
    struct erg_text text = {0};
    size_t together = bytes_with(request, needs, rank);
    int sharing = 0;
    for (int i = 0; i < request->world; i++)
        sharing += shares(request, rank, &needs[i]);
    erg_text_printf(&text, "%s: rank %d needs %.3g GiB of %s", request->job->path, rank->rank,
                    (double)rank->bytes / 0x1p30,
                    request->backend->shares_memory ? "its machine's memory"
                                                    : request->backend->name);
    if (sharing > 1)
        erg_text_printf(&text, " and the %d ranks there together %.3g GiB", sharing,
                        (double)together / 0x1p30);
    erg_text_printf(&text,
                    ", of which %.3g GiB are free; in GiB:", (double)rank->free_bytes / 0x1p30);
    add_items(&text, rank);
    add_change(&text, request, rank->free_bytes / (size_t)sharing);
    int result = erg_fail(err, ERG_INFEASIBLE, "%s", text.data);
    erg_text_release(&text);
    return result;
}

static int refuse_host(const struct erg_run_memory_request *request, const struct rank_need *needs,
                       const struct rank_need *rank, struct erg_error *err)
{
    const long stage = place_of(&request->job->layout, rank->rank).stage;
    int ranks = 0;
    for (int i = 0; i < request->world; i++)
        ranks += strcmp(needs[i].machine, rank->machine) == 0;
    return erg_fail(err, ERG_INFEASIBLE,
                    "%s: rank %d offloads %.3g GiB, and with the %d ranks of its machine %.3g GiB "
                    "of a host memory of %.3g GiB; expected less offloading, or more recomputation",
                    request->job->path, rank->rank, (double)rank->host_bytes / 0x1p30, ranks,
                    offloaded_with(request, needs, rank) / 0x1p30,
                    host_memory_of(request->job, stage) / 0x1p30);
}

int erg_run_memory_check(const struct erg_run_memory_request *request, size_t most[ERG_RANK_ITEMS],
                         struct erg_error *err)
{
    struct rank_need own = {0}, *needs = erg_xcalloc((size_t)request->world, sizeof *needs);
    int result = find_need(&own, request, err);
    result = erg_rendezvous_agree(request->rendezvous, result, err);
    if (result == 0)
        result = erg_rendezvous_all_gather(request->rendezvous, &own, sizeof own, needs,
                                           ERG_RENDEZVOUS_PATIENCE_S, err);
    const struct rank_need *largest = needs, *short_of = NULL, *host_short = NULL;
    for (int i = 0; i < request->world && result == 0; i++) {
        largest = needs[i].bytes > largest->bytes ? &needs[i] : largest;
        if (!short_of && bytes_with(request, needs, &needs[i]) > needs[i].free_bytes)
            short_of = &needs[i];
        const double host = host_memory_of(request->job, place_of(&request->job->layout, i).stage);
        if (!host_short && host > 0 && offloaded_with(request, needs, &needs[i]) > host)
            host_short = &needs[i];
    }
    memcpy(most, largest->items, sizeof largest->items);
    if (short_of) /* every rank has the result: rank 0 reports it for all */
        result =
            erg_rendezvous_agree(request->rendezvous, refuse(request, needs, short_of, err), err);
    else if (host_short)
        result = erg_rendezvous_agree(request->rendezvous,
                                      refuse_host(request, needs, host_short, err), err);
    free(needs);
    return result;
}
