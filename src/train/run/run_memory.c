/* Whether the memory of each rank fits, and the change that would help if it does not. */
#include "train/run/run_memory.h"

#include "base/memory.h"
#include "base/text.h"
#include "train/engine/ranks.h"

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

/* Ranks with one memory: on the host those of a machine. */
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

/* The host memory of the node of the rank's stage, from the job; 0: not given. */
static double host_memory_of(const struct erg_run_memory_request *request, int rank)
{
    const struct erg_job *job = request->job;
    struct erg_ranks ranks;
    erg_ranks_place(&ranks, &job->layout, rank);
    return job->kinds[job->stage_kind[ranks.stage]].nodes->host_memory_bytes;
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
        long rank = stage * layout->tensor * layout->context * layout->data;
        int result = erg_rank_memory_init(&memory, &job, backend, (int)rank, NULL);
        most = memory.bytes > most ? memory.bytes : most;
        erg_rank_memory_release(&memory);
        if (result != 0)
            return 0;
    }
    return most;
}

/* The mode that needs no product, and with which it fits if it does not now; NULL: none. */
static const char *recompute_that_fits(const struct erg_run_memory_request *request,
                                       const struct erg_layout *layout, size_t room)
{
    for (int mode = ERG_RECOMPUTE_NORMS; mode < ERG_RECOMPUTE_FULL; mode++) {
        if (layout->stage_recompute || layout->recompute != ERG_RECOMPUTE_NONE)
            return NULL;
        struct erg_layout tried = *layout;
        tried.recompute = (enum erg_recompute)mode;
        const size_t bytes = erg_run_memory_of(request->job, request->backend, &tried);
        if (bytes > 0 && bytes <= room)
            return erg_recompute_name(tried.recompute);
    }
    return NULL;
}

/* Adds the smallest change with which each rank takes no more than `room`: recomputation without
 * products, the largest microbatch that the step's sequences divide into, then twice, four times,
 * ... as many ranks for a part of the weights each. */
static void add_change(struct erg_text *text, const struct erg_run_memory_request *request,
                       size_t room)
{
    const struct erg_layout *own = &request->job->layout;
    const long sequences = own->microbatch * own->microbatches;
    struct erg_layout layout = *own;
    const char *mode = recompute_that_fits(request, own, room);
    if (mode) {
        erg_text_printf(text, "; with recompute %s it would fit", mode);
        return;
    }
    for (long b = own->microbatch - 1; b >= 1; b--) {
        if (sequences % b != 0)
            continue;
        layout.microbatch = b;
        layout.microbatches = sequences / b;
        size_t bytes = erg_run_memory_of(request->job, request->backend, &layout);
        if (bytes > 0 && bytes <= room) {
            erg_text_printf(text,
                            "; with microbatch_size %ld and microbatches %ld it would take %.3g "
                            "GiB",
                            b, layout.microbatches, (double)bytes / 0x1p30);
            return;
        }
    }
    for (long more = 2; more <= 64 && !request->backend->shares_memory; more *= 2)
        for (int deeper = 0; deeper < 2; deeper++) {
            layout = *own;
            layout.chunk_layers = NULL;
            *(deeper ? &layout.pipeline : &layout.tensor) *= more;
            size_t bytes = erg_run_memory_of(request->job, request->backend, &layout);
            if (bytes > 0 && bytes <= room) {
                erg_text_printf(text, "; with %s %ld, on %ld ranks, it would take %.3g GiB",
                                deeper ? "pipeline" : "tensor",
                                deeper ? layout.pipeline : layout.tensor, erg_layout_gpus(&layout),
                                (double)bytes / 0x1p30);
                return;
            }
        }
    erg_text_add(text, "; no smaller microbatch fits");
}

/* The items, the largest first, but those below a hundredth. */
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
    erg_text_printf(&text, "%s: rank %d takes %.3g GiB of %s", request->job->path, rank->rank,
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
    int ranks = 0;
    for (int i = 0; i < request->world; i++)
        ranks += strcmp(needs[i].machine, rank->machine) == 0;
    return erg_fail(err, ERG_INFEASIBLE,
                    "%s: rank %d offloads %.3g GiB, and with the %d ranks of its machine %.3g GiB "
                    "of a host memory of %.3g GiB; expected less offloading, or more recomputation",
                    request->job->path, rank->rank, (double)rank->host_bytes / 0x1p30, ranks,
                    offloaded_with(request, needs, rank) / 0x1p30,
                    host_memory_of(request, rank->rank) / 0x1p30);
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
        const double host = host_memory_of(request, i);
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
