/* The parts of a layout's time, energy and bytes. */
#include "io/print.h"
#include "report/text/layout_print.h"

#include "base/table.h"
#include "layout/energy/candidate.h"
#include "layout/memory/stage_memory.h"

#include <math.h>
#include <stdio.h>

#define MOST_ITEMS 32
_Static_assert((int)ERG_TIME_ITEMS <= MOST_ITEMS && (int)ERG_MEMORY_ITEMS <= MOST_ITEMS &&
                   (int)ERG_LAYOUT_ENERGY_ITEMS <= MOST_ITEMS,
               "room for every item");

/* The parts of one value of a layout. */
struct parts {
    double items[MOST_ITEMS], sum;
};

/* One table: the parts of `own`, next to those of `its` unless NULL. */
static void print_parts(FILE *out, const char *heading, const char *unit, int decimals,
                        const char *const *names, size_t count, const struct parts *own,
                        const struct parts *its)
{
    struct erg_table table = {.columns = its ? 5 : 4};
    erg_table_add(&table, "%s", heading);
    erg_table_add(&table, "%s", unit);
    erg_table_add(&table, "share");
    if (its)
        erg_table_add(&table, "best");
    erg_table_add(&table, "%s", "");
    for (size_t i = 0; i <= count; i++) {
        bool sum = i == count;
        double one = sum ? own->sum : own->items[i];
        double other = !its ? 0 : sum ? its->sum : its->items[i];
        if (one <= 0 && other <= 0)
            continue;
        erg_table_add(&table, "%s", sum ? "all" : names[i]);
        erg_table_add(&table, "%.*f", decimals, one);
        erg_table_add(&table, "%.1f %%", 100 * one / own->sum);
        if (its)
            erg_table_add(&table, "%.*f", decimals, other);
        if (its)
            erg_table_add(&table, "%+.1f %%", 100 * (one - other) / its->sum);
        else
            erg_table_add(&table, "%s", "");
    }
    putc('\n', out);
    erg_print_table(out, &table, "");
}

static void print_times(FILE *out, const struct erg_layout_candidate *one,
                        const struct erg_layout_candidate *other)
{
    const char *names[ERG_TIME_ITEMS];
    struct parts parts[2];
    for (int i = 0; i < ERG_TIME_ITEMS; i++) {
        names[i] = erg_time_item_name((enum erg_time_item)i);
        parts[0].items[i] = one->time.items[i];
        parts[1].items[i] = other ? other->time.items[i] : 0;
    }
    parts[0].sum = one->time.total;
    parts[1].sum = other ? other->time.total : 0;
    print_parts(out, "where the time goes", "s", 4, names, ERG_TIME_ITEMS, &parts[0],
                other ? &parts[1] : NULL);
}

static void print_energies(FILE *out, const struct erg_layout_answer *answer,
                           const struct erg_layout_candidate *one,
                           const struct erg_layout_candidate *other)
{
    const struct erg_layout_candidate *const both[] = {one, other};
    const char *names[ERG_LAYOUT_ENERGY_ITEMS];
    struct parts parts[2];
    for (int i = 0; i < ERG_LAYOUT_ENERGY_ITEMS; i++)
        names[i] = erg_layout_energy_item_name((enum erg_layout_energy_item)i);
    for (int which = 0; which < 2 && both[which]; which++) {
        struct erg_layout_energy energy;
        erg_layout_candidate_energy(&energy, answer->searches, both[which]);
        for (int i = 0; i < ERG_LAYOUT_ENERGY_ITEMS; i++)
            parts[which].items[i] = energy.items[i] / 1e3;
        parts[which].sum = energy.total_j / 1e3;
    }
    print_parts(out, "where the energy goes", "kJ", 2, names, ERG_LAYOUT_ENERGY_ITEMS, &parts[0],
                other ? &parts[1] : NULL);
}

/* Adds the items of the stage that needs most; returns that stage. */
static long find_bytes(struct parts *parts, const struct erg_layout_search *search,
                       const struct erg_layout *layout)
{
    const struct erg_model *model = search->model;
    const struct erg_memory_request request =
        erg_memory_request_of(model, layout, search->kinds[0].engine);
    struct erg_memory_sizes sizes;
    long worst = 0;
    erg_memory_sizes_of(&sizes, model, layout);
    parts->sum = -INFINITY;
    for (long stage = 0; stage < layout->pipeline; stage++) {
        struct erg_memory_stage closed;
        erg_memory_closed(&closed, &request, &sizes, stage);
        if (closed.peak_bytes / 0x1p30 <= parts->sum)
            continue;
        worst = stage;
        parts->sum = closed.peak_bytes / 0x1p30;
        for (int i = 0; i < ERG_MEMORY_ITEMS; i++)
            parts->items[i] = closed.items[i] / 0x1p30;
    }
    return worst;
}

static void print_bytes(FILE *out, const struct erg_layout_search *search,
                        const struct erg_layout_candidate *one,
                        const struct erg_layout_candidate *other)
{
    const char *names[ERG_MEMORY_ITEMS];
    struct parts parts[2];
    char heading[64];
    for (int i = 0; i < ERG_MEMORY_ITEMS; i++)
        names[i] = erg_memory_item_name((enum erg_memory_item)i);
    long stage = find_bytes(&parts[0], search, &one->layout);
    if (other)
        find_bytes(&parts[1], search, &other->layout);
    snprintf(heading, sizeof heading, "where the bytes of stage %ld go", stage);
    print_parts(out, heading, "GiB", 2, names, ERG_MEMORY_ITEMS, &parts[0],
                other ? &parts[1] : NULL);
}

void erg_layout_print_items(FILE *out, const struct erg_layout_answer *answer,
                            const struct erg_layout_candidate *one,
                            const struct erg_layout_candidate *other)
{
    print_times(out, one, other);
    print_energies(out, answer, one, other);
    print_bytes(out, answer->searches, one, other);
}
