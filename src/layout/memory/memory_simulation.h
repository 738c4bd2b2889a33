/* Shared by the files of the simulation only: one stage, and the tensors of one microbatch. */
#ifndef ERG_LAYOUT_MEMORY_MEMORY_SIMULATION_H
#define ERG_LAYOUT_MEMORY_MEMORY_SIMULATION_H

#include "layout/memory/allocator.h"
#include "layout/memory/memory_internal.h"

/* The tensors that one microbatch keeps of one chunk. */
struct erg_memory_group {
    long chunk, microbatch, layers;
    bool head, moves; /* belongs to the head's chunk; partly moves to host memory */
    /* [layer * ERG_MEMORY_ROLES + role]: the tensor, the rest of a tensor that is partly in host
     * memory, and the reassembled tensor. */
    struct erg_memory_kept {
        uint32_t block, rest[2];
    } * kept;
    /* The head's chunk keeps the final norm's input and output and the softmax. */
    uint32_t head_input, head_norm, softmax;
};

struct erg_memory_simulation {
    const struct erg_memory_request *request;
    const struct erg_memory_sizes *sizes;
    long stage;
    long rank; /* of the data x context ranks; context fastest */
    enum erg_recompute recompute;
    struct erg_memory_allocator memory;
};

/*
 * One layer's forward pass: keeps `input` as its first tensor and returns its output. With full
 * rematerialization the rest is freed at the end, unless `replay`.
 */
uint32_t erg_memory_layer_forward(struct erg_memory_simulation *s, struct erg_memory_group *group,
                                  long layer, uint32_t input, bool replay);

/* Its backward pass: takes the gradient of its output, returns that of its input. */
uint32_t erg_memory_layer_backward(struct erg_memory_simulation *s, struct erg_memory_group *group,
                                   long layer, uint32_t gradient);

/*
 * The FFN half of a layer with a mixture of experts (expert_layer.c), to its output; and backward,
 * with the sum into the gradient of the residual stream.
 */
uint32_t erg_memory_experts_layer_forward(struct erg_memory_simulation *s,
                                          struct erg_memory_kept *kept,
                                          enum erg_recompute recompute);
uint32_t erg_memory_experts_layer_backward(struct erg_memory_simulation *s,
                                           struct erg_memory_kept *kept, uint32_t *gradient);

uint32_t erg_memory_embedding_forward(struct erg_memory_simulation *s);
/* Final norm, logits and loss; `input` stays with the group. */
void erg_memory_head_forward(struct erg_memory_simulation *s, struct erg_memory_group *group,
                             uint32_t input);
uint32_t erg_memory_head_backward(struct erg_memory_simulation *s, struct erg_memory_group *group);

/*
 * Simulates a stage of one rank with `microbatches` per iteration; `course` may be NULL. More
 * microbatches than erg_memory_microbatches() do not change the result.
 */
void erg_memory_simulate_rank(struct erg_memory_stage *result, struct erg_memory_course *course,
                              const struct erg_memory_request *request,
                              const struct erg_memory_sizes *sizes, long stage, long rank,
                              long microbatches);
long erg_memory_microbatches(const struct erg_layout *layout);

/* Peak of the worst rank of a stage, or of the first one found that needs more than `enough`. */
double erg_memory_stage_peak(const struct erg_memory_request *request,
                             const struct erg_memory_sizes *sizes, long stage, double enough);

/* Frees the part of one tensor that a group keeps. */
void erg_memory_drop(struct erg_memory_simulation *s, struct erg_memory_kept *kept);

#endif
