/* Tables of measured communication, and what they say of a size that was not measured. */
#include "hardware/comm_table.h"

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
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* What all samples of a curve have in common. */
struct key {
    char gpu_type[64];
    long nodes, gpus_per_node, infiniband;
    enum erg_collective op;
    struct erg_comm_group group;
};

struct erg_comm_tables {
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

const char *erg_collective_name(enum erg_collective op)
{
    return names[op];
}

struct erg_comm_group erg_comm_group_of(long first, long stride, long size, long gpus_per_node)
{
    struct erg_comm_group group = {size, 0};
    long last = -1;
    for (long i = 0; i < size; i++) {
        long node = (first + i * stride) / gpus_per_node;
        group.nodes += node != last;
        last = node;
    }
    return group;
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

static int add_row(struct erg_comm_tables *tables, const struct erg_csv *csv, size_t row,
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

int erg_comm_tables_load(struct erg_comm_tables **out, const char *path, struct erg_error *err)
{
    static const char *const headers[COLUMNS] = {"gpu_type",      "num_nodes", "gpus_per_node",
                                                 "infiniband",    "op",        "group_size",
                                                 "hosts_crossed", "elements",  "time_s"};
    struct erg_csv *csv;
    if (erg_csv_load(&csv, path, err) != 0)
        return -1;
    struct erg_comm_tables *tables = erg_xcalloc(1, sizeof *tables);
    size_t columns[COLUMNS];
    int result = 0;
    for (int i = 0; i < COLUMNS && result == 0; i++)
        result = erg_csv_require(csv, headers[i], &columns[i], err);
    for (size_t row = 0; row < erg_csv_rows(csv) && result == 0; row++)
        result = add_row(tables, csv, row, columns, err);
    if (result == 0)
        *out = tables;
    else
        erg_comm_tables_free(tables);
    erg_csv_free(csv);
    return result;
}

struct erg_comm_tables *erg_comm_tables_of_links(const struct erg_allocation *allocation,
                                                 const struct erg_comm_links *links)
{
    static const double elements[] = {1, 0x1p26}; /* a straight line */
    struct erg_comm_tables *tables = erg_xcalloc(1, sizeof *tables);
    long gpus = allocation->nodes * allocation->gpus_per_node;
    struct key key = {.nodes = allocation->nodes, .gpus_per_node = allocation->gpus_per_node};
    snprintf(key.gpu_type, sizeof key.gpu_type, "%s", allocation->gpu_type);
    for (long size = 2; size <= gpus; size *= 2)
        for (long nodes = 1; nodes <= size && nodes <= allocation->nodes; nodes++)
            for (key.op = ERG_SEND; key.op < ERG_COLLECTIVES; key.op++) {
                struct key one = key;
                double rate = nodes == 1
                                  ? links->node_bandwidth
                                  : links->network_bandwidth * floor((double)size / (double)nodes);
                double sent = (double)(size - 1) / (double)size; /* of what each GPU has */
                if (key.op == ERG_SEND && (size > 2 || nodes > 2))
                    continue;
                if (key.op == ERG_SEND) {
                    sent = 1;
                    one.nodes = nodes;
                    one.gpus_per_node = 2 / nodes;
                } else if (key.op == ERG_ALL_REDUCE) {
                    sent *= 2;
                }
                one.group = (struct erg_comm_group){size, nodes};
                ERG_PUSH(&tables->curves, items,
                         (struct curve){one, tables->elements.count, COUNT(elements)});
                for (size_t i = 0; i < COUNT(elements); i++) {
                    double bytes = sent * elements[i] * sizeof(float);
                    ERG_PUSH(&tables->elements, items, elements[i]);
                    ERG_PUSH(&tables->times, items, links->latency_s + bytes / rate);
                }
            }
    return tables;
}

void erg_comm_tables_free(struct erg_comm_tables *tables)
{
    if (!tables)
        return;
    free(tables->curves.items);
    free(tables->elements.items);
    free(tables->times.items);
    free(tables);
}

/* The last curve with this key: later runs replace earlier ones. */
static const struct curve *find_key(const struct erg_comm_tables *tables, const struct key *key)
{
    for (size_t i = tables->curves.count; i-- > 0;)
        if (same_key(&tables->curves.items[i].key, key))
            return &tables->curves.items[i];
    return NULL;
}

static bool was_measured_on(const struct erg_comm_tables *tables, const char *gpu_type,
                            bool infiniband)
{
    for (size_t i = 0; i < tables->curves.count; i++) {
        const struct key *key = &tables->curves.items[i].key;
        if (!strcmp(key->gpu_type, gpu_type) && (key->infiniband != 0) == infiniband)
            return true;
    }
    return false;
}

int erg_comm_tables_find(const struct erg_comm_tables *tables,
                         const struct erg_allocation *allocation, enum erg_collective op,
                         struct erg_comm_group group, struct erg_comm_curve *curve,
                         struct erg_error *err)
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
                        erg_collective_name(op), group.size, group.nodes, allocation->nodes,
                        allocation->gpus_per_node, type);
    *curve = (struct erg_comm_curve){tables->elements.items + found->first,
                                     tables->times.items + found->first, found->count};
    return 0;
}

double erg_comm_time(const struct erg_comm_curve *curve, double elements)
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
        return (transfers * times[last] + erg_comm_time(curve, rest)) * contention;
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

double erg_comm_elements(double count, enum erg_comm_type type)
{
    static const double factors[] = {
        [ERG_COMM_FP32] = 1, [ERG_COMM_INT32] = 1, [ERG_COMM_FP16] = 0.5, [ERG_COMM_BOOL] = 0.25};
    return count * factors[type];
}
