/* Explains why a pass is not the next one of the plan. */
#include "hooks/hook_order.h"

#include "base/memory.h"
#include "ergon/hook.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[] = {"forward", "backward", "backward-weight", "other"};
enum { KINDS = sizeof kind_names / sizeof *kind_names };

/* The search range around the plan's numbers. */
enum { MOST_AWAY = 64 };

const char *erg_pass_kind_name(int kind)
{
    return kind_names[kind];
}

int erg_pass_kind_parse(const char *name)
{
    for (int kind = 0; kind < KINDS; kind++)
        if (strcmp(name, kind_names[kind]) == 0)
            return kind;
    return -1;
}

bool erg_pass_is(const struct erg_pass_came *came, const struct erg_instruction *instruction)
{
    return came->kind == (int)instruction->direction &&
           (came->chunk < 0 || (uint32_t)came->chunk == instruction->chunk) &&
           (came->microbatch < 0 || (uint32_t)came->microbatch == instruction->microbatch);
}

/* ---- causes ---- */

struct hypothesis {
    size_t stages, stage, microbatches, chunks;
    bool forward_only;
    double distance; /* from the plan */
};

struct causes {
    struct hypothesis nearest[2]; /* of different kinds */
    size_t count;
};

/* Whether two passes look the same to the trainer's reports. */
static bool is_alike(const struct erg_order_mistake *mistake, const struct erg_instruction *a,
                     const struct erg_instruction *b)
{
    return a->direction == b->direction && (!mistake->names_chunks || a->chunk == b->chunk) &&
           (!mistake->names_microbatches || a->microbatch == b->microbatch);
}

/* The passes of a step under the hypothesis. The caller frees them. */
static struct erg_instruction *make_order(const struct hypothesis *hypothesis, size_t *count)
{
    const struct erg_pass_order order =
        erg_pass_order_of(hypothesis->stages, hypothesis->chunks, hypothesis->microbatches);
    size_t kept = 0;
    *count = 2 * erg_pass_order_count(&order);
    struct erg_instruction *instructions = erg_xcalloc(*count, sizeof *instructions);
    erg_schedule_stage(instructions, hypothesis->stage, &order);
    for (size_t i = 0; i < *count && hypothesis->forward_only; i++)
        if (instructions[i].direction == ERG_FORWARD)
            instructions[kept++] = instructions[i];
    if (hypothesis->forward_only)
        *count = kept;
    return instructions;
}

static bool explains(const struct erg_order_mistake *mistake, const struct hypothesis *hypothesis)
{
    size_t count, i = 0;
    struct erg_instruction *order = make_order(hypothesis, &count);
    bool fits = mistake->came ? count > mistake->position : count == mistake->position;
    for (; fits && i < mistake->position; i++)
        fits = is_alike(mistake, &order[i], &mistake->instructions[i]);
    if (fits && mistake->came)
        fits = erg_pass_is(mistake->came, &order[mistake->position]);
    free(order);
    return fits;
}

/* Keeps the nearest two. */
static void add_cause(struct causes *causes, const struct hypothesis *hypothesis)
{
    if (causes->count > 0 && hypothesis->distance < causes->nearest[0].distance) {
        causes->nearest[1] = causes->nearest[0];
        causes->nearest[0] = *hypothesis;
        causes->count = 2;
    } else if (causes->count < 2 || hypothesis->distance < causes->nearest[1].distance) {
        causes->nearest[causes->count > 0] = *hypothesis;
        causes->count += causes->count < 2;
    }
}

/* Distances: likely mistakes are nearer; unlikely ones are further away. */

/*
 * Finds, among the orders with another value of the pipeline's number `member` than the plan's, the
 * nearest one that explains the passes.
 */
static void try_number(const struct erg_order_mistake *mistake, struct causes *causes,
                       const struct hypothesis *planned, size_t member, double weight)
{
    for (size_t away = 1; away <= MOST_AWAY; away++)
        for (int up = 1; up >= 0; up--) {
            struct hypothesis tried = *planned;
            size_t *number = (size_t *)(void *)((char *)&tried + member);
            if (!up && away >= *number)
                continue;
            *number = up ? *number + away : *number - away;
            tried.distance = weight * (double)away;
            if (tried.stage < tried.stages && explains(mistake, &tried)) {
                add_cause(causes, &tried);
                return;
            }
        }
}

static void try_stages(const struct erg_order_mistake *mistake, struct causes *causes,
                       const struct hypothesis *planned)
{
    struct hypothesis tried = *planned;
    tried.distance = 0.8;
    for (tried.stage = 0; tried.stage < tried.stages; tried.stage++)
        if (tried.stage != planned->stage && explains(mistake, &tried)) {
            add_cause(causes, &tried);
            return;
        }
}

static void find_causes(const struct erg_order_mistake *mistake, struct causes *causes)
{
    const struct erg_pipeline *pipeline = mistake->pipeline;
    const struct hypothesis planned = {.stages = pipeline->stages,
                                       .stage = mistake->stage,
                                       .microbatches = pipeline->microbatches,
                                       .chunks = pipeline->chunks};
    struct hypothesis evaluation = planned;
    /*
     * A pipeline that matched the plan for one step still does; the passes in between are an
     * evaluation.
     */
    evaluation.forward_only = true;
    evaluation.distance = mistake->step > 0 ? 0.25 : 1;
    if (explains(mistake, &evaluation))
        add_cause(causes, &evaluation);
    try_number(mistake, causes, &planned, offsetof(struct hypothesis, microbatches), 0.9);
    try_number(mistake, causes, &planned, offsetof(struct hypothesis, chunks), 1.2);
    try_number(mistake, causes, &planned, offsetof(struct hypothesis, stages), 0.9);
    try_stages(mistake, causes, &planned);
}

static void describe(struct erg_text *text, const struct erg_order_mistake *mistake,
                     const struct hypothesis *cause)
{
    const struct erg_pipeline *pipeline = mistake->pipeline;
    if (cause->forward_only)
        erg_text_add(text, "this is an evaluation, before which erg_hook_pause() was expected");
    else if (cause->microbatches != pipeline->microbatches)
        erg_text_printf(text, "the trainer runs %zu microbatch%s, the plan has %zu",
                        cause->microbatches, cause->microbatches == 1 ? "" : "es",
                        pipeline->microbatches);
    else if (cause->stages != pipeline->stages)
        erg_text_printf(text, "the trainer's pipeline has %zu stage%s, the plan's %zu",
                        cause->stages, erg_plural(cause->stages), pipeline->stages);
    else if (cause->chunks != pipeline->chunks)
        erg_text_printf(text, "%s: the trainer's stages have %zu chunk%s, the plan's %zu",
                        cause->chunks == 1 ? "interleaving is off" : "interleaving differs",
                        cause->chunks, erg_plural(cause->chunks), pipeline->chunks);
    else
        erg_text_printf(text, "this rank is stage %zu of the pipeline, the hook was opened for %zu",
                        cause->stage, mistake->stage);
}

static void add_causes(struct erg_text *text, const struct erg_order_mistake *mistake)
{
    struct causes causes = {0};
    if (mistake->splits_backward) {
        erg_text_add(text, "the trainer runs a zero-bubble schedule, which splits backward passes");
        return;
    }
    if (!mistake->came && mistake->position == 0) {
        erg_text_add(text, "no pass went through the hook: a schedule that bypasses it, such as "
                           "one that combines forward and backward passes, is not supported");
        return;
    }
    find_causes(mistake, &causes);
    if (!causes.count)
        erg_text_add(text, "no pipeline schedule in ergon has this order");
    for (size_t i = 0; i < causes.count; i++) {
        if (i > 0 && causes.nearest[1].distance > causes.nearest[0].distance + 0.5)
            break;
        erg_text_add(text, i ? "; or " : "");
        describe(text, mistake, &causes.nearest[i]);
    }
}

/* ---- the sentence ---- */

static void name_pass(struct erg_text *text, const struct erg_order_mistake *mistake, int kind,
                      int chunk, int microbatch)
{
    erg_text_printf(text, "%s pass", kind_names[kind]);
    if (microbatch >= 0)
        erg_text_printf(text, " of microbatch %d", microbatch);
    if (chunk >= 0 && (mistake->pipeline->chunks > 1 || chunk > 0))
        erg_text_printf(text, "%s chunk %d", microbatch >= 0 ? " on" : " of", chunk);
}

void erg_order_explain(struct erg_text *text, const struct erg_order_mistake *mistake)
{
    const struct erg_pipeline *pipeline = mistake->pipeline;
    const size_t count = 2 * pipeline->microbatches * pipeline->chunks;
    erg_text_printf(text, "step %" PRId64 ", pass %zu of stage %zu: ", mistake->step,
                    mistake->position, mistake->stage);
    if (mistake->came)
        name_pass(text, mistake, mistake->came->kind, mistake->came->chunk,
                  mistake->came->microbatch);
    else
        erg_text_add(text, "the end of the step");
    erg_text_add(text, " came, expected ");
    if (mistake->position < count) {
        const struct erg_instruction *next = &mistake->instructions[mistake->position];
        name_pass(text, mistake, (int)next->direction, (int)next->chunk, (int)next->microbatch);
    } else {
        erg_text_printf(text, "the end of the step after %zu passes", count);
    }
    erg_text_add(text, ": ");
    add_causes(text, mistake);
}
