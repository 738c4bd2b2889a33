/* Tables of measured communication, and what they say of a size that was not measured. */
#include "comm_table.h"

#include "base/memory.h"
#include "io/csv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the published look-up extrapolates with. */
#define CONTENTION_PER_TRANSFER 1.1
#define CONTENTION_FROM_ELEMENTS 0x1p27
#define MOST_GPUS_PER_NODE 16

/* What all samples of a curve have in common. */
struct key {
    char gpu_type[64];
    long nodes, gpus_per_node, infiniband;
    enum erg_grid_collective op;
    struct erg_comm_group group;
};

struct comm_tables {
    struct {
        struct curve {
            struct key key;
            size_t first, count;
        } * items;
        size_t count, capacity;
    } curves;
    struct {
        double *items;
        size_t count, capacity;
    } elements, times;
};

static const char *const names[ERG_COLLECTIVES] = {
    [ERG_SEND] = "send",
    [ERG_ALL_REDUCE] = "all-reduce",
    [ERG_ALL_GATHER] = "all-gather",
    [ERG_ALL_TO_ALL] = "all-to-all",
    [ERG_REDUCE_SCATTER] = "reduce-scatter",
};

const char *comm_collective_name(enum erg_grid_collective op)
{
    return names[op];
}

static bool same_key(const struct key *a, const struct key *b)
{
    return !strcmp(a->gpu_type, b->gpu_type) && a->nodes == b->nodes &&
           a->gpus_per_node == b->gpus_per_node && a->infiniband == b->infiniband &&
           a->op == b->op && a->group.size == b->group.size && a->group.nodes == b->group.nodes;
}

enum { TYPE, NODES, GPUS, NETWORK, OP, SIZE, CROSSED, ELEMENTS, TIME, COLUMNS };

static int read_row(const struct erg_csv *csv, size_t row, const size_t *columns, struct key *key,
                    double *elements, double *time_s, struct erg_error *err)
{
    const char *type = erg_csv_text(csv, row, columns[TYPE]);
    const char *op = erg_csv_text(csv, row, columns[OP]);
    *key = (struct key){.op = ERG_SEND};
    if (strlen(type) >= sizeof key->gpu_type || !*type)
        return erg_csv_fail(csv, row, err, "expected a GPU type of 1 to %zu letters, got '%s'",
                            sizeof key->gpu_type - 1, type);
    strcpy(key->gpu_type, type);
    while (key->op < ERG_COLLECTIVES && strcmp(names[key->op], op) != 0)
        key->op++;
    if (key->op == ERG_COLLECTIVES)
        return erg_csv_fail(csv, row, err,
                            "expected send, all-reduce, all-gather, all-to-all or reduce-scatter, "
                            "got '%s'",
                            op);
    if (erg_csv_long(csv, row, columns[NODES], &key->nodes, err) != 0 ||
        erg_csv_long(csv, row, columns[GPUS], &key->gpus_per_node, err) != 0 ||
        erg_csv_long(csv, row, columns[NETWORK], &key->infiniband, err) != 0 ||
        erg_csv_long(csv, row, columns[SIZE], &key->group.size, err) != 0 ||
        erg_csv_long(csv, row, columns[CROSSED], &key->group.nodes, err) != 0 ||
        erg_csv_double(csv, row, columns[ELEMENTS], elements, err) != 0 ||
        erg_csv_double(csv, row, columns[TIME], time_s, err) != 0)
        return -1;
    if (!(*elements > 0) || !(*time_s > 0))
        return erg_csv_fail(csv, row, err, "expected elements and a time above 0, got %g and %g",
                            *elements, *time_s);
    return 0;
}

static int add_row(struct comm_tables *tables, const struct erg_csv *csv, size_t row,
                   const size_t *columns, struct erg_error *err)
{
    struct key key;
    double elements, time_s;
    if (read_row(csv, row, columns, &key, &elements, &time_s, err) != 0)
        return -1;
    /* Rows of a curve stand together, and a second run of it begins with a smaller size. */
    struct curve *last =
        tables->curves.count ? &tables->curves.items[tables->curves.count - 1] : NULL;
    bool starts = !last || !same_key(&last->key, &key) ||
                  elements <= tables->elements.items[tables->elements.count - 1];
    if (starts)
        ERG_PUSH(&tables->curves, items, (struct curve){key, tables->elements.count, 0});
    ERG_PUSH(&tables->elements, items, elements);
    ERG_PUSH(&tables->times, items, time_s);
    tables->curves.items[tables->curves.count - 1].count++;
    return 0;
}

int comm_tables_load(struct comm_tables **out, const char *path, struct erg_error *err)
{
    static const char *const headers[COLUMNS] = {"gpu_type",      "num_nodes", "gpus_per_node",
                                                 "infiniband",    "op",        "group_size",
                                                 "hosts_crossed", "elements",  "time_s"};
    struct erg_csv *csv;
    if (erg_csv_load(&csv, path, err) != 0)
        return -1;
    struct comm_tables *tables = erg_xcalloc(1, sizeof *tables);
    size_t columns[COLUMNS];
    int result = 0;
    for (int i = 0; i < COLUMNS && result == 0; i++)
        result = erg_csv_require(csv, headers[i], &columns[i], err);
    for (size_t row = 0; row < erg_csv_rows(csv) && result == 0; row++)
        result = add_row(tables, csv, row, columns, err);
    if (result == 0)
        *out = tables;
    else
        comm_tables_free(tables);
    erg_csv_free(csv);
    return result;
}

void comm_tables_free(struct comm_tables *tables)
{
    if (!tables)
        return;
    free(tables->curves.items);
    free(tables->elements.items);
    free(tables->times.items);
    free(tables);
}

/* The last curve with this key: later runs replace earlier ones. */
static const struct curve *find_key(const struct comm_tables *tables, const struct key *key)
{
    for (size_t i = tables->curves.count; i-- > 0;)
        if (same_key(&tables->curves.items[i].key, key))
            return &tables->curves.items[i];
    return NULL;
}

static bool was_measured_on(const struct comm_tables *tables, const char *gpu_type, bool infiniband)
{
    for (size_t i = 0; i < tables->curves.count; i++) {
        const struct key *key = &tables->curves.items[i].key;
        if (!strcmp(key->gpu_type, gpu_type) && (key->infiniband != 0) == infiniband)
            return true;
    }
    return false;
}

int comm_tables_find(const struct comm_tables *tables, const struct erg_allocation *allocation,
                     enum erg_grid_collective op, struct erg_comm_group group,
                     struct comm_curve *curve, struct erg_error *err)
{
    struct key key = {.op = op, .group = group, .nodes = allocation->nodes};
    const char *type = allocation->gpu_type;
    const struct curve *found = NULL;
    bool infiniband = allocation->infiniband;
    if (!was_measured_on(tables, type, infiniband))
        infiniband = !infiniband;
    key.infiniband = infiniband;
    if (strlen(type) < sizeof key.gpu_type)
        strcpy(key.gpu_type, type);
    key.gpus_per_node = allocation->gpus_per_node;
    if (op == ERG_SEND) {
        key.nodes = group.nodes;
        key.gpus_per_node = 2 / group.nodes;
    }
    for (; !found && key.gpus_per_node <= MOST_GPUS_PER_NODE; key.gpus_per_node *= 2)
        found = find_key(tables, &key);
    if (!found)
        return erg_fail(err, ERG_FAILED,
                        "communication tables: no %s of %ld GPUs across %ld nodes was measured in "
                        "%ld x %ld %s, nor with more GPUs in a node",
                        comm_collective_name(op), group.size, group.nodes, allocation->nodes,
                        allocation->gpus_per_node, type);
    *curve = (struct comm_curve){tables->elements.items + found->first,
                                 tables->times.items + found->first, found->count};
    return 0;
}

double comm_time(const struct comm_curve *curve, double elements)
{
    const double *sizes = curve->elements, *times = curve->time_s;
    size_t last = curve->count - 1;
    if (elements <= sizes[0])
        return times[0];
    if (elements > sizes[last]) {
        double transfers = floor(elements / sizes[last]);
        double rest = elements - transfers * sizes[last];
        double contention =
            sizes[last] >= CONTENTION_FROM_ELEMENTS ? pow(CONTENTION_PER_TRANSFER, transfers) : 1;
        return (transfers * times[last] + comm_time(curve, rest)) * contention;
    }
    size_t low = 0, high = last; /* sizes[low] < elements <= sizes[high] */
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (sizes[middle] < elements)
            low = middle;
        else
            high = middle;
    }
    double share = (elements - sizes[low]) / (sizes[high] - sizes[low]);
    return elements == sizes[high] ? times[high] : times[low] + share * (times[high] - times[low]);
}

static int time_of_tables(const void *context, const struct erg_allocation *allocation,
                          enum erg_grid_collective op, struct erg_comm_group group, double elements,
                          double *seconds, struct erg_error *err)
{
    struct comm_curve curve;
    if (comm_tables_find(context, allocation, op, group, &curve, err) != 0)
        return -1;
    *seconds += comm_time(&curve, elements);
    return 0;
}

struct erg_grid_network comm_tables_network(const struct comm_tables *tables)
{
    return (struct erg_grid_network){time_of_tables, tables};
}
