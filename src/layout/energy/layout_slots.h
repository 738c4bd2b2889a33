/* The tensor groups of a layout on all of its nodes, as a request for their slots
 * (thermal/slots_nodes.h). */
#ifndef ERG_LAYOUT_SLOTS_H
#define ERG_LAYOUT_SLOTS_H

#include "layout/energy/layout_energy.h"
#include "thermal/slots_nodes.h"

struct erg_layout_slots {
    struct erg_slots_nodes_request request; /* points into this */
    int *stage, *layers, *least;
    double *more_s;
};

/*
 * Fills the request except its goal. Nodes have stages in the order of the ranks, a stage's data
 * ranks together. The time of a layer's passes is computed at two clocks and interpolated as a part
 * that scales with the clock plus a constant part. Layers without experts, of a model whose others
 * have them, stay where they are. ERG_FAILED for a layout with virtual stages, and if groups fill
 * or span whole nodes. Release it.
 */
int erg_layout_slots_init(struct erg_layout_slots *slots,
                          const struct erg_layout_energy_request *energy,
                          const struct erg_layout *layout, const struct erg_chassis *chassis,
                          struct erg_error *err);
void erg_layout_slots_release(struct erg_layout_slots *slots);

#endif
