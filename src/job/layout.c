/* Layouts: their names, from text, and whether a model can be spread so. */
#include "job/layout.h"

#include "base/memory.h"
#include "base/text.h"

#include <assert.h>
#include <string.h>

const char *const erg_recompute_names[ERG_RECOMPUTES + 1] = {
    [ERG_RECOMPUTE_NONE] = "none",
    [ERG_RECOMPUTE_NORMS] = "norms",
    [ERG_RECOMPUTE_ACTIVATION] = "activation",
    [ERG_RECOMPUTE_BALANCED] = "balanced",
    [ERG_RECOMPUTE_FULL] = "full",
};

const char *erg_recompute_name(enum erg_recompute recompute)
{
    assert((unsigned)recompute < ERG_RECOMPUTES);
    return erg_recompute_names[recompute];
}

long erg_layout_vocabulary(const struct erg_model *model, long tensor)
{
    return erg_model_padded_vocabulary(model, tensor);
}

const char erg_layout_alternating[] = "alternate+1";

bool erg_layout_alternate(long *layers, long all, long pipeline)
{
    const long mean = all / pipeline;
    assert(pipeline > 0);
    long left = all;
    for (long stage = 0; stage < pipeline; stage++) {
        layers[stage] = stage + 1 == pipeline ? left : mean + (stage % 2 ? -1 : 1);
        left -= layers[stage];
        if (layers[stage] < 1)
            return false;
    }
    return true;
}

static void *copy_list(const void *list, size_t bytes, struct erg_arena *arena)
{
    return list ? memcpy(erg_arena_alloc(arena, bytes), list, bytes) : NULL;
}

struct erg_layout erg_layout_copy(const struct erg_layout *layout, struct erg_arena *arena)
{
    struct erg_layout copy = *layout;
    const size_t stages = (size_t)layout->pipeline;
    const size_t chunks = stages * (size_t)layout->virtual_stages;
    copy.chunk_layers = copy_list(layout->chunk_layers, chunks * sizeof(long), arena);
    copy.stage_recompute =
        copy_list(layout->stage_recompute, stages * sizeof(enum erg_recompute), arena);
    copy.stage_offload = copy_list(layout->stage_offload, stages * sizeof(double), arena);
    return copy;
}

const char *erg_layout_recompute_name(const struct erg_layout *layout)
{
    for (long stage = 1; layout->stage_recompute && stage < layout->pipeline; stage++)
        if (layout->stage_recompute[stage] != layout->stage_recompute[0])
            return "stages";
    return erg_recompute_name(erg_layout_recompute(layout, 0));
}

/* ---- from text ---- */

/* The parts of a layout's text, and where their numbers go. */
enum part { TENSOR, CONTEXT, PIPELINE, MICROBATCH, VIRTUAL, LAYERS, EXPERT, FSDP, PARTS };
static const char *const part_names[PARTS] = {"t", "c", "p", "b", "v", "l", "e", "fsdp"};

static int parse_part(long *numbers, char *part, const char *text, struct erg_error *err)
{
    const size_t length = strcspn(part, "=");
    int place = 0;
    while (place < PARTS &&
           (strlen(part_names[place]) != length || memcmp(part_names[place], part, length) != 0))
        place++;
    if (place == PARTS || part[length] != '=')
        return erg_fail(
            err, ERG_USAGE,
            "the layout '%.80s' is invalid at '%.40s'; expected parts like t=2 of t (tensor), c "
            "(context), p (pipeline), e (expert), b (microbatch), l (layers of a chunk) or v "
            "(virtual stages) and fsdp (ranks that share weights), separated by commas",
            text, part);
    long *number = &numbers[place];
    if (*number)
        return erg_fail(err, ERG_USAGE, "the layout '%.80s' gives %s twice", text,
                        part_names[place]);
    if (!erg_parse_long(part + length + 1, number) || *number < 1 || *number > 1000000)
        return erg_fail(err, ERG_USAGE,
                        "the layout '%.80s' has '%.40s', expected a whole number from 1 to a "
                        "million after '%s=', and commas between parts",
                        text, part, part_names[place]);
    return 0;
}

int erg_layout_parse(struct erg_layout *layout, const char *text, long layers,
                     struct erg_error *err)
{
    char copy[128];
    long numbers[PARTS] = {0};
    const size_t length = strlen(text);
    if (length >= sizeof copy)
        return erg_fail(err, ERG_USAGE, "the layout '%.40s…' is too long", text);
    memcpy(copy, text, length + 1);
    for (char *rest = copy, *part; rest;) {
        part = rest;
        rest = strchr(rest, ',');
        if (rest)
            *rest++ = '\0';
        if (parse_part(numbers, part, text, err) != 0)
            return -1;
    }
    if (numbers[LAYERS] && numbers[VIRTUAL])
        return erg_fail(err, ERG_USAGE,
                        "the layout '%.80s' gives both l and v; expected one of them, since "
                        "layers = p x v x l",
                        text);
    for (int i = TENSOR; i <= MICROBATCH; i++)
        numbers[i] = numbers[i] ? numbers[i] : 1;
    if (numbers[LAYERS]) {
        long chunk = numbers[PIPELINE] * numbers[LAYERS];
        if (layers % chunk != 0)
            return erg_fail(err, ERG_INFEASIBLE,
                            "%ld layers cannot be cut into chunks of %ld for %ld pipeline stages: "
                            "%ld is not a multiple of %ld; with v instead of l stages may differ",
                            layers, numbers[LAYERS], numbers[PIPELINE], layers, chunk);
        numbers[VIRTUAL] = layers / chunk;
    }
    layout->tensor = numbers[TENSOR];
    layout->context = numbers[CONTEXT];
    layout->pipeline = numbers[PIPELINE];
    layout->microbatch = numbers[MICROBATCH];
    layout->cut = numbers[LAYERS]    ? ERG_CUT_EQUALLY
                  : numbers[VIRTUAL] ? ERG_CUT_ANY
                                     : ERG_CUT_EVENLY;
    layout->virtual_stages = numbers[VIRTUAL] ? numbers[VIRTUAL] : 1;
    layout->fsdp = numbers[FSDP];
    layout->expert = numbers[EXPERT];
    layout->chunk_layers = NULL;
    return 0;
}

int erg_layout_fill(struct erg_layout *layout, long gpus, long batch, struct erg_error *err)
{
    long pipeline = layout->tensor * layout->context * layout->pipeline;
    if (gpus < 1 || gpus % pipeline != 0)
        return erg_fail(err, ERG_FAILED,
                        "tensor %ld x context %ld x pipeline %ld makes %ld GPUs, and %ld GPUs are "
                        "not a multiple of that",
                        layout->tensor, layout->context, layout->pipeline, pipeline, gpus);
    layout->data = gpus / pipeline;
    assert(layout->data > 0 && layout->microbatch > 0);
    long step = layout->data * layout->microbatch;
    if (batch < 1 || batch % step != 0)
        return erg_fail(err, ERG_FAILED,
                        "a batch of %ld sequences cannot be cut into microbatches of %ld on %ld "
                        "data ranks: expected a multiple of %ld",
                        batch, layout->microbatch, layout->data, step);
    layout->microbatches = batch / step;
    return 0;
}

/* ---- whether it is possible ---- */

static int check_numbers(const struct erg_layout *layout, struct erg_error *err)
{
    const struct {
        const char *name;
        long value, most;
    } numbers[] = {
        {"tensor degree", layout->tensor, 1024},
        {"context degree", layout->context, 1024},
        {"pipeline degree", layout->pipeline, 4096},
        {"data degree", layout->data, 1000000},
        {"number of virtual stages", layout->virtual_stages, 4096},
        {"microbatch", layout->microbatch, 1000000},
        {"number of microbatches", layout->microbatches, 1000000},
        {"sequence", layout->sequence, 1000000000},
        {"number of FSDP ranks", erg_layout_shards(layout), 1000000},
        {"expert degree", erg_layout_experts(layout), 100000},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value < 1 || numbers[i].value > numbers[i].most)
            return erg_fail(err, ERG_FAILED, "expected a %s from 1 to %ld, got %ld",
                            numbers[i].name, numbers[i].most, numbers[i].value);
    for (long stage = 0; stage < layout->pipeline; stage++) {
        double offload = erg_layout_offload(layout, stage);
        if (!(offload >= 0 && offload <= 1))
            return erg_fail(err, ERG_FAILED,
                            "expected an offload ratio from 0 to 1 for stage %ld, got %g", stage,
                            offload);
    }
    return 0;
}

static int check_layers(const struct erg_layout *layout, const struct erg_model *model,
                        struct erg_error *err)
{
    long chunks = layout->pipeline * layout->virtual_stages, sum = 0;
    if (layout->virtual_stages > 1 && layout->pipeline < 2)
        return erg_fail(err, ERG_FAILED,
                        "virtual stages interleave the stages of a pipeline, but there is 1 stage");
    if (model->layers < chunks)
        return erg_fail(err, ERG_FAILED, "%s has %ld layers, too few for %ld stages of %ld chunks",
                        model->name, model->layers, layout->pipeline, layout->virtual_stages);
    if (!layout->chunk_layers && model->layers % chunks != 0)
        return erg_fail(err, ERG_FAILED,
                        "the %ld layers of %s cannot be divided among %ld stages of %ld chunks; "
                        "expected the layers of each",
                        model->layers, model->name, layout->pipeline, layout->virtual_stages);
    for (long i = 0; layout->chunk_layers && i < chunks; i++) {
        if (layout->chunk_layers[i] < 1)
            return erg_fail(err, ERG_FAILED, "chunk %ld has %ld layers, expected at least 1", i,
                            layout->chunk_layers[i]);
        sum += layout->chunk_layers[i];
    }
    if (layout->chunk_layers && sum != model->layers)
        return erg_fail(err, ERG_FAILED, "the chunks hold %ld layers together, but %s has %ld", sum,
                        model->name, model->layers);
    if (layout->virtual_stages == 1)
        return 0;
    if (layout->microbatches % layout->pipeline != 0)
        return erg_fail(err, ERG_FAILED,
                        "the interleaved schedule needs a multiple of the %ld pipeline stages as "
                        "microbatches, got %ld",
                        layout->pipeline, layout->microbatches);
    return 0;
}

int erg_layout_check_sharding(const struct erg_layout *layout, struct erg_error *err)
{
    const long ranks = layout->data * layout->context;
    if (!erg_layout_is_sharded(layout))
        return 0;
    if (layout->pipeline > 1)
        return erg_fail(err, ERG_FAILED,
                        "fsdp %ld shards the layers of one stage, got a pipeline degree of %ld; "
                        "FSDP with pipeline stages is not modelled",
                        layout->fsdp, layout->pipeline);
    if (layout->fsdp % layout->context != 0)
        return erg_fail(err, ERG_FAILED,
                        "fsdp %ld cuts context groups of %ld; expected a multiple of the context "
                        "degree",
                        layout->fsdp, layout->context);
    if (ranks % layout->fsdp != 0)
        return erg_fail(err, ERG_FAILED,
                        "fsdp %ld does not divide the %ld ranks of data %ld x context %ld",
                        layout->fsdp, ranks, layout->data, layout->context);
    return 0;
}

long erg_layout_dense_layers(const struct erg_layout *layout, const struct erg_model *model,
                             long stage, long layers)
{
    long left = model->experts.dense_layers;
    for (long before = 0; before < stage && left > 0; before++)
        left -= erg_layout_stage_layers(layout, model->layers, before);
    return left < 0 ? 0 : left < layers ? left : layers;
}

int erg_layout_check_lora(const struct erg_model *model, struct erg_error *err)
{
    if (model->lora.rank == 0 || (!model->experts.count && !model->latent.keys))
        return 0;
    if (model->latent.keys || model->experts.dense_layers > 0)
        return erg_fail(err, ERG_FAILED, "LoRA of %s is not modelled: it has %s", model->name,
                        model->latent.keys ? "a latent attention"
                                           : "layers with and without experts");
    if (model->lora.targets & (1u << ERG_LORA_FC1 | 1u << ERG_LORA_FC2))
        return erg_fail(err, ERG_FAILED,
                        "LoRA of the experts of %s is not modelled; expected the targets qkv and "
                        "proj only",
                        model->name);
    return 0;
}

int erg_layout_check_experts(const struct erg_layout *layout, const struct erg_model *model,
                             struct erg_error *err)
{
    const long expert = erg_layout_experts(layout);
    const char *what = model->experts.count ? "experts" : "a latent attention";
    if (erg_model_check_experts(model, expert, err) != 0)
        return -1;
    if (!model->experts.count && !model->latent.keys)
        return 0;
    if (erg_layout_check_lora(model, err) != 0)
        return -1;
    if (layout->context > 1)
        return erg_fail(err, ERG_FAILED,
                        "%s has %s, and context parallelism with that is not modelled; expected "
                        "a context degree of 1, got %ld",
                        model->name, what, layout->context);
    if (!model->experts.count)
        return 0;
    if (model->experts.dense_layers > 0 && !model->experts.dense_first)
        return erg_fail(err, ERG_FAILED,
                        "%ld layers of %s have no experts and lie between others, which is not "
                        "modelled; expected them to be the first",
                        model->experts.dense_layers, model->name);
    if (erg_layout_is_sharded(layout))
        return erg_fail(err, ERG_FAILED,
                        "%s has experts, and FSDP together with them is not modelled; expected no "
                        "fsdp, got %ld",
                        model->name, layout->fsdp);
    if (layout->virtual_stages > 1)
        return erg_fail(err, ERG_FAILED,
                        "%s has experts, and interleaved stages with them are not modelled; "
                        "expected 1 virtual stage, got %ld",
                        model->name, layout->virtual_stages);
    if (layout->data % expert != 0)
        return erg_fail(err, ERG_FAILED,
                        "an expert degree of %ld does not divide the %ld data ranks", expert,
                        layout->data);
    return 0;
}

int erg_layout_check_group(const struct erg_layout *layout, long gpus, long node_gpus,
                           struct erg_error *err)
{
    long group = layout->tensor * layout->context;
    if (erg_nodes_hold_groups(node_gpus, group, gpus))
        return 0;
    if (group > node_gpus)
        return erg_fail(err, ERG_FAILED,
                        "tensor %ld x context %ld are %ld GPUs, more than the %ld of a node",
                        layout->tensor, layout->context, group, node_gpus);
    return erg_fail(err, ERG_FAILED,
                    "tensor %ld x context %ld makes groups of %ld GPUs, which do not fill nodes of "
                    "%ld evenly",
                    layout->tensor, layout->context, group, node_gpus);
}

bool erg_layout_leaves_node(long ranks, long node_gpus, long from, long to)
{
    const long first = from < to ? from : to, last = from < to ? to : from;
    return first < last && first * ranks / node_gpus != ((last + 1) * ranks - 1) / node_gpus;
}

int erg_layout_check(const struct erg_layout *layout, const struct erg_model *model,
                     struct erg_error *err)
{
    struct erg_model padded = *model;
    if (check_numbers(layout, err) != 0)
        return -1;
    padded.vocab = erg_layout_vocabulary(model, layout->tensor);
    if (erg_model_check_tensor(&padded, layout->tensor, err) != 0 ||
        erg_model_check_sequence(model, layout->context, layout->sequence, err) != 0 ||
        erg_layout_check_sharding(layout, err) != 0 ||
        erg_layout_check_experts(layout, model, err) != 0 || check_layers(layout, model, err) != 0)
        return -1;
    long tokens =
        layout->sequence / layout->context; /* sequence parallelism splits each sequence */
    if (tokens % layout->tensor != 0 && !erg_layout_is_sharded(layout))
        return erg_fail(err, ERG_FAILED,
                        "the %ld tokens of a sequence on a context rank cannot be divided among a "
                        "tensor degree of %ld",
                        tokens, layout->tensor);
    return 0;
}
