/*
 * The tensor groups of a layout on one node, as a question of which slots they take
 * (thermal/slots.h).
 */
#ifndef ERG_LAYOUT_SLOTS_H
#define ERG_LAYOUT_SLOTS_H

#include "layout/energy/layout_energy.h"
#include "thermal/slots.h"

struct erg_layout_slots {
    struct erg_slots_request request; /* points into this */
    int layers[ERG_CHASSIS_GPUS];
    double more_s[ERG_CHASSIS_GPUS];
    long stage[ERG_CHASSIS_GPUS]; /* of each group */
    long node, nodes;             /* from 0; the one with most to do, of so many */
};

/*
 * Fills the question, but for what is wished of it. The groups are those of the node that has most
 * to do, with stages in the order of the ranks, a stage's data ranks together. Passes of a layer
 * take what they take at two clocks, and a part that goes with the clock and one that does not
 * between them. ERG_FAILED for a layout whose groups are whole nodes or no part of one, or with
 * virtual stages.
 */
int erg_layout_slots_init(struct erg_layout_slots *slots,
                          const struct erg_layout_energy_request *energy,
                          const struct erg_layout *layout, const struct erg_chassis *chassis,
                          struct erg_error *err);

#endif
