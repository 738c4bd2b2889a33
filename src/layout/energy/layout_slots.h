/* The tensor groups of a layout on one node, as a request for their slots (thermal/slots.h). */
#ifndef ERG_LAYOUT_SLOTS_H
#define ERG_LAYOUT_SLOTS_H

#include "layout/energy/layout_energy.h"
#include "thermal/slots.h"

struct erg_layout_slots {
    struct erg_slots_request request; /* points into this */
    int layers[ERG_CHASSIS_GPUS];
    double more_s[ERG_CHASSIS_GPUS];
    long stage[ERG_CHASSIS_GPUS]; /* of each group */
    long node, nodes;             /* the node with the most work, from 0, and the number of nodes */
};

/*
 * Fills the request except its goal. The groups are those of the node with most work, stages in the
 * order of the ranks, a stage's data ranks together. The time of a layer's passes is computed at
 * two clocks and interpolated as a part that scales with the clock plus a constant part. ERG_FAILED
 * for a layout with virtual stages, and if groups fill or span whole nodes.
 */
int erg_layout_slots_init(struct erg_layout_slots *slots,
                          const struct erg_layout_energy_request *energy,
                          const struct erg_layout *layout, const struct erg_chassis *chassis,
                          struct erg_error *err);

#endif
