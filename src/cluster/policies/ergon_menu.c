/* The shapes on which a workload can run, and the worth of each. */
#include "cluster/policies/ergon_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

double erg_fleet_base_power(const struct erg_fleet *fleet, int type)
{
    return fleet->saves_power ? fleet->types[type].off_power_w : fleet->types[type].idle_power_w;
}

double erg_menu_merit(const struct erg_menu *menu, double samples_per_s, int gpus,
                      const struct erg_operating_point *point, double rest_w, double thrift)
{
    double speed = samples_per_s / point->slowdown;
    double energy_j = (gpus * point->power_w + rest_w) / speed;
    return speed / menu->unit * (energy_j > 0 ? pow(menu->least_j / energy_j, thrift) : 1);
}

/* Lists the shapes with the given number of GPUs of a type on which the workload runs, the fastest
 * first. */
static int list_localities(struct erg_menu *menu, const struct erg_speeds *speeds, int workload,
                           int type, int gpus)
{
    size_t first = menu->localities.count;
    for (int shape = erg_speeds_best(speeds, type, gpus);
         shape >= 0 && shape < speeds->shapes_count && speeds->shapes[shape].type == type &&
         erg_shape_gpus(&speeds->shapes[shape]) == gpus;
         shape++) {
        double speed = erg_speed_at(speeds, workload, shape)->samples_per_s;
        if (speed <= 0)
            continue;
        ERG_PUSH(&menu->localities, items, shape);
        size_t at = menu->localities.count - 1;
        for (; at > first; at--) { /* equal speeds: fewer nodes first */
            int before = menu->localities.items[at - 1];
            if (erg_speed_at(speeds, workload, before)->samples_per_s >= speed)
                break;
            menu->localities.items[at] = before;
        }
        menu->localities.items[at] = shape;
    }
    return (int)(menu->localities.count - first);
}

static void add_choice(struct erg_menu *menu, const struct erg_scheduler *scheduler, int workload,
                       int type, int gpus, double *fastest)
{
    const struct erg_speeds *speeds = scheduler->speeds;
    int first = (int)menu->localities.count;
    int count = list_localities(menu, speeds, workload, type, gpus);
    if (count == 0)
        return;
    const struct erg_speed *speed = erg_speed_at(speeds, workload, menu->localities.items[first]);
    if (speed->samples_per_s <= *fastest)
        return;
    *fastest = speed->samples_per_s;
    ERG_PUSH(&menu->choices, items,
             (struct erg_menu_choice){
                 .type = type,
                 .gpus = gpus,
                 .samples_per_s = speed->samples_per_s,
                 .iteration_s = speed->iteration_s,
                 .first_locality = first,
                 .localities = count,
                 .shape = menu->localities.items[first],
             });
}

static const struct erg_speed *speed_of(const struct erg_speeds *speeds, int workload,
                                        const struct erg_menu_choice *choice)
{
    return erg_speed_at(speeds, workload, choice->shape);
}

/* The units of merits: a GPU equivalent and the least energy of a sample. */
static void find_units(struct erg_menu *menu, const struct erg_speeds *speeds, int workload)
{
    double sum = 0, gpus = 0;
    menu->least_j = menu->fastest_s = INFINITY;
    for (size_t i = 0; i < menu->choices.count;) {
        const struct erg_gpu_type *type = &speeds->fleet->types[menu->choices.items[i].type];
        int index = menu->choices.items[i].type;
        double best = 0, have = type->nodes * type->gpus_per_node;
        for (; i < menu->choices.count && menu->choices.items[i].type == index; i++) {
            const struct erg_menu_choice *choice = &menu->choices.items[i];
            const struct erg_speed *speed = speed_of(speeds, workload, choice);
            best = fmax(best, choice->samples_per_s / choice->gpus);
            if (choice->iteration_s < menu->fastest_s) {
                menu->fastest_s = choice->iteration_s;
                menu->fastest_gpus = choice->gpus;
            }
            for (int p = 0; p < speed->points_count; p++)
                menu->least_j =
                    fmin(menu->least_j, choice->gpus * speed->points[p].power_w *
                                            speed->points[p].slowdown / choice->samples_per_s);
        }
        sum += best * have;
        gpus += have;
    }
    menu->unit = sum / gpus;
}

static void make_menu(struct erg_menu *menu, const struct erg_scheduler *scheduler, int workload)
{
    const struct erg_speeds *speeds = scheduler->speeds;
    for (int type = 0; type < (int)scheduler->fleet->types_count; type++) {
        double fastest = 0;
        for (int gpus = 1; gpus <= speeds->gpus_most; gpus++)
            add_choice(menu, scheduler, workload, type, gpus, &fastest);
    }
    find_units(menu, speeds, workload);
}

void erg_menu_release(struct erg_menu *menu)
{
    free(menu->choices.items);
    free(menu->localities.items);
    free(menu->worths);
}

const struct erg_menu *erg_menu_of(struct erg_menu *menus, const struct erg_scheduler *scheduler,
                                   int job)
{
    int workload = scheduler->jobs[job].request->workload;
    if (menus[workload].choices.count == 0)
        make_menu(&menus[workload], scheduler, workload);
    return &menus[workload];
}
