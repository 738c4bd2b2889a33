/* The energy of a layout on one kind of GPUs, of the steps that a search takes apart. */
#ifndef ERGON_TESTS_ENERGY_OF_LAYOUT_H
#define ERGON_TESTS_ENERGY_OF_LAYOUT_H

#include "layout/energy/layout_energy.h"

/* `clock_mhz`: requested, within what the GPU can be locked to; 0: the highest. `uneven_s`: by how
 * much the schedule is longer than the closed form (ERG_TIME_UNEVEN), which all GPUs wait. The
 * layout is checked: erg_layout_check(). */
static void energy_of_layout(struct erg_layout_energy *energy,
                             const struct erg_layout_energy_request *request,
                             const struct erg_layout *layout, double clock_mhz, double uneven_s)
{
    long gpus = erg_layout_gpus(layout);
    struct erg_time_parts parts;
    struct erg_layout_work work;
    struct erg_layout_costs costs;
    erg_time_parts_of(&parts, &request->time,
                      &(struct erg_layout){.tensor = layout->tensor,
                                           .context = layout->context,
                                           .microbatch = layout->microbatch,
                                           .sequence = layout->sequence},
                      gpus);
    erg_layout_work_of(&work, request, &parts,
                       &(struct erg_layout){.tensor = layout->tensor,
                                            .context = layout->context,
                                            .microbatch = layout->microbatch,
                                            .sequence = layout->sequence},
                       gpus);
    erg_layout_costs_at(&costs, request, &work, clock_mhz);
    struct erg_time_place time;
    erg_time_place_init(&time, &request->time, &parts, layout,
                        erg_time_group_bandwidth(&request->time, layout->tensor,
                                                 layout->context * layout->data, gpus));
    const struct erg_layout_energy_place place = {request, &time, &costs};
    erg_layout_energy_compose(energy, &place, 1, layout, uneven_s);
}

#endif
