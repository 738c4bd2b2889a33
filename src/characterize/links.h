/*
 * How many bytes cross the links of every GPU in an iteration, by what sends them.
 *
 * Exchanges inside layers come from the model's op lists; what stages, replicas and shards send
 * each other is counted here. Each transfer goes from one rank to another: within a node over
 * NVLink, else over the network. A ring goes through the ranks of its group in their order, so of a
 * ring on several nodes the last rank of each node sends all that leaves it. What one GPU sends
 * another one receives. Bytes of one direction.
 *
 * Left out: the loss's exchange of statistics, the sum of a tied embedding's two gradients, the
 * norm of all gradients, and what a mixture's router balances with.
 */
#ifndef ERG_CHARACTERIZE_LINKS_H
#define ERG_CHARACTERIZE_LINKS_H

#include "hardware/engine.h"
#include "job/layout.h"

enum erg_link_kind {
    ERG_LINK_TENSOR,        /* inside layers, between tensor ranks */
    ERG_LINK_CONTEXT,       /* keys and values */
    ERG_LINK_ALL_TO_ALL,    /* rows to their experts and back */
    ERG_LINK_EXPERT_TENSOR, /* rows of an expert, between the tensor ranks that share it */
    ERG_LINK_PIPELINE,      /* messages between stages */
    ERG_LINK_GRADIENTS,     /* sums of gradients, new weights; but those of experts */
    ERG_LINK_EXPERT_GRADIENTS,
    ERG_LINK_FSDP,       /* gathers of weights, scatters of gradients, layer by layer */
    ERG_LINK_VOCABULARY, /* of embedding and head, between tensor ranks */
    ERG_LINK_KINDS,
};
const char *erg_link_kind_name(enum erg_link_kind kind); /* "tensor", … */

struct erg_link_bytes {
    double nvlink, network;
};

struct erg_gpu_links {
    struct erg_link_bytes sent[ERG_LINK_KINDS], received[ERG_LINK_KINDS];
};

struct erg_links_request {
    const struct erg_model *model;
    const struct erg_engine *engine;
    const struct erg_layout *layout; /* checked: erg_layout_check() */
    long node_gpus;
    /* Where each rank is: node x node_gpus + local; NULL: ranks fill nodes in their order. */
    const long *places;
};

struct erg_links {
    struct erg_gpu_links *gpu; /* by rank */
    long gpus;
};

/* To be released. */
void erg_links_init(struct erg_links *links, const struct erg_links_request *request);
void erg_links_release(struct erg_links *links);

/* All kinds together. */
struct erg_link_bytes erg_links_sum(const struct erg_link_bytes bytes[ERG_LINK_KINDS]);

/* The rank with these coordinates; tensor ranks follow each other, stages are farthest apart. */
static inline long erg_rank_of(const struct erg_layout *layout, long tensor, long context,
                               long data, long stage)
{
    return ((stage * layout->data + data) * layout->context + context) * layout->tensor + tensor;
}

#endif
