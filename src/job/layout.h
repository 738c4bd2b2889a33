/*
 * Layouts: how one training job is spread over GPUs, what memory that takes, and how long it runs.
 *
 * Ranks are numbered tensor fastest, then context, then data, then pipeline slowest, and nodes hold
 * consecutive ranks: so a context group is `context` ranks `tensor` apart, and the group over which
 * gradients are summed and optimizer state is sharded has data x context ranks, `tensor` apart.
 *
 * With FSDP of degree n weights and gradients are sharded, too: over n of these ranks that follow
 * each other, whole context groups. Where there are more, the others are replicas. Every layer is
 * gathered before it runs, forward and backward, and its gradients are scattered behind it. There
 * is one stage then, and the stream is not split over tensor ranks (no sequence parallelism).
 *
 * Experts of a layer are spread over `expert` ranks, which follow each other in the data group,
 * `tensor` apart. Each holds its experts as often as data / expert ranks do: these sum their
 * gradients and shard their optimizer state, `tensor` x `expert` apart.
 *
 * Source of the methods: Megatron-Kwai (pipeline-aware offloading, balanced recomputation).
 */
#ifndef ERG_JOB_LAYOUT_H
#define ERG_JOB_LAYOUT_H

#include "ergon/error.h"
#include "hardware/hardware.h"
#include "model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Rematerialization of a layer: the tensors dropped in the forward pass and computed again before
 * the backward pass needs them.
 */
enum erg_recompute {
    ERG_RECOMPUTE_NONE,
    ERG_RECOMPUTE_NORMS,      /* outputs of norms */
    ERG_RECOMPUTE_ACTIVATION, /* outputs of the FFN's activation */
    ERG_RECOMPUTE_BALANCED,   /* both: all that costs no matrix product */
    ERG_RECOMPUTE_FULL,       /* everything but the layer's input */
};
enum {
    ERG_RECOMPUTES = ERG_RECOMPUTE_FULL + 1,
    ERG_RECOMPUTE_ALL = (1 << ERG_RECOMPUTES) - 1, /* of bits 1 << enum erg_recompute */
};
const char *erg_recompute_name(enum erg_recompute recompute);     /* "none", "norms", … */
extern const char *const erg_recompute_names[ERG_RECOMPUTES + 1]; /* ends with NULL */

/* Whether a mode recomputes these from the tensors that a layer keeps. */
static inline bool erg_recompute_norms(enum erg_recompute recompute)
{
    return recompute == ERG_RECOMPUTE_NORMS || recompute == ERG_RECOMPUTE_BALANCED;
}

static inline bool erg_recompute_activation(enum erg_recompute recompute)
{
    return recompute == ERG_RECOMPUTE_ACTIVATION || recompute == ERG_RECOMPUTE_BALANCED;
}

/* Whether `least` computes nothing again that `most` does not. */
static inline bool erg_recompute_is_within(enum erg_recompute least, enum erg_recompute most)
{
    return least == most || least == ERG_RECOMPUTE_NONE || most == ERG_RECOMPUTE_FULL ||
           (most == ERG_RECOMPUTE_BALANCED && least < most);
}

/* The permitted splits of layers into chunks where the numbers are not given. */
enum erg_layout_cut {
    ERG_CUT_EVENLY,  /* equal chunks if the layers divide, else as is fastest */
    ERG_CUT_EQUALLY, /* equal chunks only */
    ERG_CUT_ANY,     /* as is fastest */
};

/* The order of the passes of a pipeline (iteration/iteration.h). */
enum erg_schedule_kind { ERG_SCHEDULE_1F1B, ERG_SCHEDULE_INTERLEAVED };

struct erg_layout {
    long tensor, context, pipeline, data; /* degrees; their product is the GPUs of the job */
    long virtual_stages;                  /* model chunks of a stage; above 1 the schedule is
                                           * interleaved 1F1B, else 1F1B */
    long microbatch;                      /* sequences */
    long microbatches;                    /* of a pipeline in an iteration */
    long sequence;                        /* tokens, over all context ranks */
    /* Layers of each chunk in model order: chunk c of stage s is [c * pipeline + s]; NULL: equal.
     */
    const long *chunk_layers;
    enum erg_layout_cut cut; /* for who looks for them (search/search.h) */
    /* The recomputation, and the share of a microbatch's activations that move to host memory, 0 to
     * 1: per stage, [pipeline], or, where NULL, the same for all. */
    enum erg_recompute recompute;
    double offload;
    const enum erg_recompute *stage_recompute;
    const double *stage_offload;
    long fsdp;   /* ranks that weights and gradients are sharded over; 0 or 1: not sharded */
    long expert; /* ranks that the experts of a layer are spread over, of the data group; 0 or 1:
                  * all are on each */
    /* Rows that an expert takes of each rank, as a multiple of its even share, filled up with empty
     * ones; 0: as many as come, which are taken to be its share. */
    double expert_capacity;
};

/* Ranks that experts are spread over, at least 1. */
static inline long erg_layout_experts(const struct erg_layout *layout)
{
    return layout->expert > 1 ? layout->expert : 1;
}

static inline enum erg_recompute erg_layout_recompute(const struct erg_layout *layout, long stage)
{
    return layout->stage_recompute ? layout->stage_recompute[stage] : layout->recompute;
}

static inline double erg_layout_offload(const struct erg_layout *layout, long stage)
{
    return layout->stage_offload ? layout->stage_offload[stage] : layout->offload;
}

static inline enum erg_schedule_kind erg_layout_schedule(const struct erg_layout *layout)
{
    return layout->virtual_stages > 1 ? ERG_SCHEDULE_INTERLEAVED : ERG_SCHEDULE_1F1B;
}

/* The recomputation of all stages, "stages" where they differ. */
const char *erg_layout_recompute_name(const struct erg_layout *layout);

/* Layers of chunk `chunk` of stage `stage`, of a model with `layers`. */
static inline long erg_layout_chunk_layers(const struct erg_layout *layout, long layers, long stage,
                                           long chunk)
{
    if (layout->chunk_layers)
        return layout->chunk_layers[chunk * layout->pipeline + stage];
    /* In 32 bits, which takes a third of the time: searches divide a lot.
     * NOLINTNEXTLINE(clang-analyzer-core.DivideZero): degrees are at least 1 */
    return (uint32_t)layers / (uint32_t)(layout->pipeline * layout->virtual_stages);
}

/* Layers of all chunks of a stage. */
static inline long erg_layout_stage_layers(const struct erg_layout *layout, long layers, long stage)
{
    long sum = 0;
    if (!layout->chunk_layers)
        return layout->virtual_stages * erg_layout_chunk_layers(layout, layers, stage, 0);
    for (long chunk = 0; chunk < layout->virtual_stages; chunk++)
        sum += layout->chunk_layers[chunk * layout->pipeline + stage];
    return sum;
}

/* The number of a stage's `layers` that are among the model's first ones without experts. */
long erg_layout_dense_layers(const struct erg_layout *layout, const struct erg_model *model,
                             long stage, long layers);

static inline long erg_layout_gpus(const struct erg_layout *layout)
{
    return layout->tensor * layout->context * layout->pipeline * layout->data;
}

/* Whether weights and gradients are sharded, and over how many ranks, at least 1. */
static inline bool erg_layout_is_sharded(const struct erg_layout *layout)
{
    return layout->fsdp > 1;
}

static inline long erg_layout_shards(const struct erg_layout *layout)
{
    return layout->fsdp > 1 ? layout->fsdp : 1;
}

/* Sequences of an iteration, on all data ranks. */
static inline long erg_layout_batch(const struct erg_layout *layout)
{
    return layout->data * layout->microbatch * layout->microbatches;
}

/* Layers of stages that differ by turns: of n = layers / pipeline stage 0, 2, … has n + 1 and stage
 * 1, 3, … n - 1; the last has the rest. layers[pipeline]; false: a stage would have none. */
bool erg_layout_alternate(long *layers, long all, long pipeline);
extern const char erg_layout_alternating[]; /* how files say so */

/* The same with lists of its own, which lie in the arena. */
struct erg_layout erg_layout_copy(const struct erg_layout *layout, struct erg_arena *arena);

/* Words of the vocabulary with padding, as in erg_model_padded_vocabulary(). */
long erg_layout_vocabulary(const struct erg_model *model, long tensor);

/*
 * Degrees from text, for example "t=2,c=2,p=8,l=2": t tensor, c context, p pipeline, e expert, b
 * microbatch, and either v virtual stages, whose chunks may differ in layers, or l layers of every
 * chunk (then `layers` decides v), and fsdp ranks that weights are sharded over; missing degrees
 * are 1. Touches nothing else of the layout, and no layers may have been given for its chunks.
 * ERG_USAGE where the text is wrong, ERG_INFEASIBLE where the layers cannot be cut so.
 */
int erg_layout_parse(struct erg_layout *layout, const char *text, long layers,
                     struct erg_error *err);

/* Sets data and microbatches so that `gpus` train on `batch` sequences in an iteration. */
int erg_layout_fill(struct erg_layout *layout, long gpus, long batch, struct erg_error *err);

/* Whether groups of tensor x context ranks stay within nodes of the given size, which `gpus` ranks
 * fill one after the other. */
int erg_layout_check_group(const struct erg_layout *layout, long gpus, long node_gpus,
                           struct erg_error *err);

/* Whether the FSDP degree is possible; a part of erg_layout_check(). */
int erg_layout_check_sharding(const struct erg_layout *layout, struct erg_error *err);

/* Whether a message from any GPU of a stage to its like in another one leaves a node: stages of
 * `ranks` GPUs, counted from the first on these nodes. None does where the first GPU of the earlier
 * stage and the last one of the later lie in the same. */
bool erg_layout_leaves_node(long ranks, long node_gpus, long from, long to);

/* Whether LoRA can train the model: not its experts, and no latent attention. */
int erg_layout_check_lora(const struct erg_model *model, struct erg_error *err);
/* Whether experts can have this degree: it divides experts and data ranks; with experts there are
 * no context groups and no virtual stages, with a latent attention no context groups. A part of
 * erg_layout_check(). */
int erg_layout_check_experts(const struct erg_layout *layout, const struct erg_model *model,
                             struct erg_error *err);

/*
 * Whether the model can be spread so: degrees at least 1 that divide heads, groups, widths and
 * sequence; layers enough for the chunks, equal where no split is given; interleaving needs as many
 * microbatches as stages, or a multiple; FSDP one stage, and a degree of whole context groups that
 * divides data x context. The message names the constraint.
 */
int erg_layout_check(const struct erg_layout *layout, const struct erg_model *model,
                     struct erg_error *err);

#endif
