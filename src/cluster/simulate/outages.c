/* Outages of nodes, read from a file or drawn. */
#include "cluster/simulate/outages.h"

#include "base/memory.h"
#include "base/random.h"
#include "io/csv.h"

#include <math.h>
#include <stdlib.h>

/* An outage and its row in the table. */
struct outage_row {
    const struct erg_outage *outage;
    size_t row;
};

static int compare(const void *a, const void *b)
{
    const struct outage_row *x = a, *y = b;
    if (x->outage->node != y->outage->node)
        return x->outage->node - y->outage->node;
    if (x->outage->from_s != y->outage->from_s)
        return x->outage->from_s > y->outage->from_s ? 1 : -1;
    return (x->row > y->row) - (x->row < y->row);
}

/* A node's outages do not overlap. */
static int check_rows(const struct erg_outages *outages, const struct erg_csv *csv,
                      struct erg_error *err)
{
    struct outage_row *rows = erg_xcalloc(outages->count, sizeof *rows);
    int result = 0;
    for (size_t i = 0; i < outages->count; i++)
        rows[i] = (struct outage_row){&outages->items[i], i};
    qsort(rows, outages->count, sizeof *rows, compare);
    for (size_t i = 1; i < outages->count && result == 0; i++) {
        const struct erg_outage *outage = rows[i].outage, *before = rows[i - 1].outage;
        if (outage->node == before->node && outage->from_s < before->to_s)
            result = erg_csv_fail(csv, rows[i].row, err,
                                  "node %d fails at %g s, but by line %zu it is down from %g s on "
                                  "and not back by then",
                                  outage->node, outage->from_s, erg_csv_line(csv, rows[i - 1].row),
                                  before->from_s);
    }
    free(rows);
    return result;
}

static int read_row(struct erg_outages *outages, const struct erg_csv *csv, size_t row,
                    const size_t *columns, const struct erg_fleet *fleet, struct erg_error *err)
{
    struct erg_outage outage = {.to_s = INFINITY};
    long node;
    if (erg_csv_long(csv, row, columns[0], &node, err) != 0 ||
        erg_csv_double(csv, row, columns[1], &outage.from_s, err) != 0)
        return -1;
    if (*erg_csv_text(csv, row, columns[2]) &&
        erg_csv_double(csv, row, columns[2], &outage.to_s, err) != 0)
        return -1;
    if (node < 0 || node >= fleet->nodes)
        return erg_csv_fail(csv, row, err, "column 'node': expected 0 to %d, got %ld",
                            fleet->nodes - 1, node);
    if (outage.from_s < 0 || outage.to_s <= outage.from_s)
        return erg_csv_fail(csv, row, err,
                            "expected an outage that begins at 0 s or later and ends after that, "
                            "got %g to %g",
                            outage.from_s, outage.to_s);
    outage.node = (int)node;
    ERG_PUSH(outages, items, outage);
    return 0;
}

static int read_rows(struct erg_outages *outages, const struct erg_csv *csv, const char *path,
                     const struct erg_fleet *fleet, struct erg_error *err)
{
    static const char *const headers[] = {"node", "from_s", "to_s"};
    size_t columns[3];
    for (int i = 0; i < 3; i++)
        if (erg_csv_require(csv, headers[i], &columns[i], err) != 0)
            return -1;
    if (erg_csv_rows(csv) == 0)
        return erg_fail(err, ERG_FAILED, "%s:1: expected at least one outage below the header",
                        path);
    for (size_t row = 0; row < erg_csv_rows(csv); row++)
        if (read_row(outages, csv, row, columns, fleet, err) != 0)
            return -1;
    return check_rows(outages, csv, err);
}

int erg_outages_load(struct erg_outages *outages, const char *path, const struct erg_fleet *fleet,
                     struct erg_error *err)
{
    struct erg_csv *csv;
    if (erg_csv_load(&csv, path, err) != 0)
        return -1;
    *outages = (struct erg_outages){0};
    int result = read_rows(outages, csv, path, fleet, err);
    if (result != 0)
        erg_outages_release(outages);
    erg_csv_free(csv);
    return result;
}

void erg_outages_draw(struct erg_outages *outages, const struct erg_fleet *fleet, double mean_s,
                      double repair_s, double until_s, uint64_t seed)
{
    *outages = (struct erg_outages){0};
    for (int node = 0; node < fleet->nodes; node++) {
        struct erg_rng rng;
        erg_rng_seed(&rng, erg_hash_u64(seed, (uint64_t)node));
        double at_s = 0;
        for (;;) {
            at_s -= mean_s * log(1 - erg_rng_uniform(&rng));
            if (at_s >= until_s)
                break;
            ERG_PUSH(outages, items, (struct erg_outage){node, at_s, at_s + repair_s});
            at_s += repair_s;
        }
    }
}

void erg_outages_release(struct erg_outages *outages)
{
    free(outages->items);
    *outages = (struct erg_outages){0};
}
