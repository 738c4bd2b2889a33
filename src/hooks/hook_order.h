/*
 * Order: describes a trainer's deviation from the order of its plan in one sentence, with the most
 * likely cause.
 *
 * Until then all passes of the step matched the plan. So another pipeline explains the mistake if
 * its order on this stage begins with the same passes and continues with the pass that came. The
 * search tries other numbers of microbatches and stages, other stages, interleaving on or off, and
 * a step of forward passes alone. The sentence names the pipeline that differs least, and a second
 * one that differs as little.
 */
#ifndef ERG_HOOKS_HOOK_ORDER_H
#define ERG_HOOKS_HOOK_ORDER_H

#include "base/text.h"
#include "iteration/iteration.h"

/* A pass as the trainer reports it; -1: unknown. */
struct erg_pass_came {
    int kind, chunk, microbatch;
};

struct erg_order_mistake {
    const struct erg_pipeline *pipeline;        /* of the plan */
    const struct erg_instruction *instructions; /* of this stage, [2 * microbatches * chunks] */
    size_t stage, position;                     /* from 0: the number of correct passes */
    const struct erg_pass_came *came;           /* NULL: the step ended */
    bool names_microbatches,
        names_chunks;     /* the trainer gave these numbers for all passes of the step */
    bool splits_backward; /* there was a backward pass for weights alone */
    int64_t step;         /* from 0; earlier steps were correct */
};

void erg_order_explain(struct erg_text *text, const struct erg_order_mistake *mistake);

/* Whether the known values of a pass match the instruction. */
bool erg_pass_is(const struct erg_pass_came *came, const struct erg_instruction *instruction);

/* "forward", "backward", "backward-weight", "other". */
const char *erg_pass_kind_name(int kind);
int erg_pass_kind_parse(const char *name); /* -1: none of them */

#endif
