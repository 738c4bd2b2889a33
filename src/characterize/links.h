/*
 * Bytes on the links of every GPU in an iteration, by kind.
 *
 * Exchanges inside layers come from the model's op lists; messages between stages, replicas and
 * shards are counted here. Each transfer goes from one rank to another: over NVLink within a node,
 * over the network between nodes. A ring connects the ranks of its group in order. So in a ring
 * across several nodes, the last rank of each node sends all bytes that leave the node. The bytes
 * that one GPU sends, another one receives. All bytes are of one direction.
 *
 * Not counted: the exchange of the loss's statistics, the sum of a tied embedding's two gradients,
 * the norm of all gradients, and the data with which a mixture of experts balances its router.
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
    ERG_LINK_GRADIENTS,     /* sums of gradients, gathers of new weights; without those of
                             * experts */
    ERG_LINK_EXPERT_GRADIENTS,
    ERG_LINK_FSDP,       /* gathers of weights and scatters of gradients in every layer */
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
    /* The place of each rank: node * node_gpus + local; NULL: ranks fill nodes in order. */
    const long *places;
};

struct erg_links {
    struct erg_gpu_links *gpu; /* [rank] */
    long gpus;
};

/* To be released. */
void erg_links_init(struct erg_links *links, const struct erg_links_request *request);
void erg_links_release(struct erg_links *links);

/* The sum of all kinds. */
struct erg_link_bytes erg_links_sum(const struct erg_link_bytes bytes[ERG_LINK_KINDS]);

/* The rank with these coordinates; tensor ranks are adjacent, stages are farthest apart. */
static inline long erg_rank_of(const struct erg_layout *layout, long tensor, long context,
                               long data, long stage)
{
    return ((stage * layout->data + data) * layout->context + context) * layout->tensor + tensor;
}

#endif
