/* The text after a refusal: the smallest change that would help. */
#include "api/layout_query.h"

#include "layout/search/nearest.h"

#include <math.h>

static void add_part(struct erg_text *out, const char *name, long from, long to)
{
    if (from != to)
        erg_text_printf(out, "%s%s %ld", out->count ? " and " : "", name, to);
}

static long chunks_of(const struct erg_layout *layout)
{
    return layout->pipeline * layout->virtual_stages;
}

int erg_layout_say_change(struct erg_layout_remedy *remedy, const struct erg_layout_search *search,
                          const struct erg_layout *layout, struct erg_error *err)
{
    struct erg_layout_change change;
    struct erg_text parts = {0}, hint = {0};
    const long layers = search->model->layers;
    const struct erg_error refused = *err;
    erg_layout_find_change(&change, search, layout);
    const struct erg_layout *changed = &change.candidate.layout;
    if (change.changed) {
        add_part(&parts, "tensor", layout->tensor, changed->tensor);
        add_part(&parts, "context", layout->context, changed->context);
        add_part(&parts, "pipeline", layout->pipeline, changed->pipeline);
        if (layout->cut != ERG_CUT_EQUALLY)
            add_part(&parts, "virtual stages", layout->virtual_stages, changed->virtual_stages);
        else /* as it was asked for */
            add_part(&parts, "layers of a chunk", layers / chunks_of(layout),
                     layers / chunks_of(changed));
        add_part(&parts, "microbatch", layout->microbatch, changed->microbatch);
        add_part(&parts, "expert", erg_layout_experts(layout), erg_layout_experts(changed));
        if (changed->recompute != layout->recompute)
            erg_text_printf(&parts, "%srecompute %s", parts.count ? " and " : "",
                            erg_recompute_name(changed->recompute));
        if (!parts.count && layout->cut != ERG_CUT_ANY) /* layers that stages differ in */
            erg_text_printf(&parts, "layers split by their time (v=%ld)", changed->virtual_stages);
        if (changed->offload > 0)
            erg_text_printf(&parts, "%s%.1f %% of the activations offloaded",
                            parts.count ? ", " : "", 100 * changed->offload);
        erg_text_printf(&hint, "; it fits with %s",
                        parts.count ? parts.data : "the same degrees and other layers of stages");
        erg_text_printf(&hint, " (%.4g s an iteration)", change.candidate.time.total);
    }
    if (change.memory_bytes > 0)
        erg_text_printf(&hint, "%s as it is with %.1f GiB a GPU for tensors",
                        change.changed ? ", or" : "; it fits", change.memory_bytes / 0x1p30);
    *remedy =
        (struct erg_layout_remedy){.layout = change.candidate, .memory_bytes = change.memory_bytes};
    erg_fail(err, refused.status, "%s%s", refused.message,
             hint.count ? hint.data : "; no change of two of its degrees makes it fit");
    erg_text_release(&parts);
    erg_text_release(&hint);
    return -1;
}

/* The text before each of several changes, each of which is enough. */
static const char *joined(const struct erg_text *hints)
{
    return hints->count ? ", or " : "";
}

int erg_layout_say_needed(struct erg_layout_remedy *remedy, const struct erg_layout_search *search,
                          struct erg_error *err)
{
    enum { MOST_NODES = 512, MOST_BATCH = 64 };
    const struct erg_error refused = *err;
    if (refused.status != ERG_INFEASIBLE)
        return -1;
    long node = search->kinds[0].machine.node_gpus;
    long most = search->kinds[0].machine.network_bandwidth > 0 ? MOST_NODES * node : node;
    const long gpus = erg_layout_fewest_gpus(search, most);
    const long batch = erg_layout_nearest_batch(search, MOST_BATCH);
    const double memory_bytes = erg_layout_least_memory(search);
    struct erg_text hints = {0};
    *remedy =
        (struct erg_layout_remedy){.memory_bytes = memory_bytes, .gpus = gpus, .batch = batch};
    if (memory_bytes > 0)
        erg_text_printf(&hints, "with %.2f GiB a GPU for tensors",
                        ceil(100 * memory_bytes / 0x1p30) / 100);
    if (gpus)
        erg_text_printf(&hints, "%son %ld GPUs", joined(&hints), gpus);
    if (batch)
        erg_text_printf(&hints, "%swith a batch of %ld", joined(&hints), batch);
    if (hints.count)
        erg_fail(err, refused.status, "%s; something fits %s", refused.message, hints.data);
    else
        erg_fail(err, refused.status, "%s; nor does anything on up to %ld GPUs", refused.message,
                 most);
    erg_text_release(&hints);
    return -1;
}
