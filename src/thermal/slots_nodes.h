/*
 * Chooses the slots of the tensor groups of several nodes, and the layers of the stages.
 *
 * Nodes are alike, and each keeps its groups. All groups of a stage have the same layers, whichever
 * nodes they are on. Nodes wait for the slowest stage of all: each is first placed alone, which
 * gives the shortest time of a microbatch that the groups allow, and then again at that pace, where
 * among placements that hold it the node's goal decides. With the goal of time this is the fastest
 * iteration for these layers if the nodes' searches are exact (slots.h).
 *
 * Layers and slots are optimised in turn, at most three times: each layer goes to the stage that is
 * fastest with it at the present clocks; then single layers leave the slowest stage while that
 * helps. Equal layers favour slots in which all groups are equally hot, so a second start gives
 * groups the coolest slots one after the other.
 */
#ifndef ERG_THERMAL_SLOTS_NODES_H
#define ERG_THERMAL_SLOTS_NODES_H

#include "thermal/slots.h"

struct erg_slots_nodes_request {
    struct erg_slots_request node; /* of every node; `layers`, `more_s` and `other_s` are ignored */
    int nodes;
    const int *stage;  /* [nodes * groups] stage of each group of each node */
    const int *layers; /* [node.stages] */
    const int *least;  /* [node.stages] fewest layers of a stage; NULL: 1 */
    const double
        *more_s;      /* [node.stages] time of a microbatch in addition to the layers; NULL: 0 */
    bool move_layers; /* between stages */
};

/* The placements of all nodes, at the pace of the slowest stage. */
struct erg_slots_nodes {
    struct erg_slots_placement *node; /* [nodes] */
    int *layers;                      /* [stages] */
    double time_s, energy_j;          /* of an iteration; of all nodes */
    double hottest_c;
};

struct erg_slots_nodes_found {
    struct erg_slots_nodes given, best; /* given: slots in the order of the groups, given layers */
    bool exact; /* all placements of every node were evaluated, for each choice of layers tried */
    /* The share of the gain that exists only because slots are not equally cool; NAN without a
     * gain. */
    double heat_share;
};

/* Fails as erg_slots_place(). Release it. */
int erg_slots_place_nodes(const struct erg_slots_nodes_request *request,
                          struct erg_slots_nodes_found *found, struct erg_error *err);
void erg_slots_nodes_release(struct erg_slots_nodes_found *found);

#endif
