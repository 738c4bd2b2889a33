/* Reads Calculon's JSON files. */
#include "layout/exchange/calculon.h"

#include "io/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int erg_calculon_model_parse(struct erg_calculon_model *model, const char *name, const char *text,
                             size_t length, struct erg_error *err)
{
    json_t *root;
    struct erg_json_place place;
    if (erg_json_open(&place, &root, name, text, length, err) != 0)
        return -1;
    int status =
        erg_json_long(&place, "hidden", 1, 10000000, &model->hidden, err) ||
                erg_json_long(&place, "feedforward", 1, 10000000, &model->feedforward, err) ||
                erg_json_long(&place, "seq_size", 1, 100000000, &model->sequence, err) ||
                erg_json_long(&place, "attn_heads", 1, 1000000, &model->heads, err) ||
                erg_json_long(&place, "attn_size", 1, 8192, &model->head_dim, err) ||
                erg_json_long(&place, "num_blocks", 1, 10000, &model->blocks, err)
            ? -1
            : 0;
    json_decref(root);
    return status;
}

/* One row of a table of efficiencies: a size, from which on the share applies. */
static int read_row(const struct erg_json_place *place, const char *key, const json_t *row,
                    double *size, double *share, struct erg_error *err)
{
    const json_t *first = json_array_get(row, 0), *second = json_array_get(row, 1);
    if (json_array_size(row) != 2 || !json_is_number(first) || !json_is_number(second))
        return erg_json_fail(place, key, err,
                             "expected rows of two numbers, a size and an efficiency");
    *size = json_number_value(first);
    *share = json_number_value(second);
    if (!(*share >= 0.01 && *share <= 1))
        return erg_json_fail(place, key, err, "expected efficiencies from 0.01 to 1, got %g",
                             *share);
    return 0;
}

/* `unit`: the unit of the table's sizes. */
static int read_efficiency(const struct erg_json_place *place, const char *key, double unit,
                           struct erg_calculon_efficiency *efficiency, struct erg_error *err)
{
    const json_t *rows;
    double last = INFINITY;
    if (erg_json_array(place, key, &rows, err) != 0)
        return -1;
    efficiency->count = json_array_size(rows);
    if (efficiency->count < 1 || efficiency->count > ERG_CALCULON_MOST_ROWS)
        return erg_json_fail(place, key, err, "expected at least one row and at most %d, got %zu",
                             ERG_CALCULON_MOST_ROWS, efficiency->count);
    for (size_t i = 0; i < efficiency->count; i++) {
        double size = 0;
        if (read_row(place, key, json_array_get(rows, i), &size, &efficiency->shares[i], err) != 0)
            return -1;
        if (!(size < last))
            return erg_json_fail(place, key, err,
                                 "expected sizes that fall from row to row, got %g after %g", size,
                                 last);
        last = size;
        efficiency->sizes[i] = size * unit;
    }
    return 0;
}

double erg_calculon_share(const struct erg_calculon_efficiency *efficiency, double size)
{
    size_t row = 0;
    while (row + 1 < efficiency->count && size < efficiency->sizes[row])
        row++;
    return efficiency->shares[row];
}

static int read_matrix(struct erg_calculon_system *system, const struct erg_json_place *root,
                       struct erg_error *err)
{
    struct erg_json_place matrix, type;
    double tflops;
    if (erg_json_enter(&matrix, root, "matrix", err) != 0)
        return -1;
    bool bfloat16 = !erg_json_has(&matrix, "float16") && erg_json_has(&matrix, "bfloat16");
    if (erg_json_enter(&type, &matrix, bfloat16 ? "bfloat16" : "float16", err) != 0 ||
        erg_json_double(&type, "tflops", 1, 1e5, &tflops, err) != 0)
        return -1;
    system->peak_flops = tflops * 1e12;
    return read_efficiency(&type, "gflops_efficiency", 1e9, &system->products, err);
}

/*
 * Host memory beyond that of any machine means no limit and becomes infinite; a GPU must have a
 * limit.
 */
static int read_capacity(const struct erg_json_place *memory, double least, double *gib,
                         struct erg_error *err)
{
    static const double most = 1e5;
    if (erg_json_double(memory, "GiB", least, INFINITY, gib, err) != 0)
        return -1;
    if (*gib <= most)
        return 0;
    if (least > 0)
        return erg_json_fail(memory, "GiB", err,
                             "%.3g GiB mean unlimited memory, but layouts must fit a GPU's memory; "
                             "expected at most %g, for example 80",
                             *gib, most);
    *gib = INFINITY;
    return 0;
}

/* `least`: the lowest capacity in GiB; 0 for a host. */
static int read_memory(const struct erg_json_place *root, const char *key, double least,
                       double *bytes, double *bandwidth, struct erg_calculon_efficiency *efficiency,
                       struct erg_error *err)
{
    struct erg_json_place memory;
    double gib, gb_s;
    if (erg_json_enter(&memory, root, key, err) != 0 ||
        read_capacity(&memory, least, &gib, err) != 0 ||
        erg_json_double(&memory, "GBps", gib > 0 ? 1 : 0, 1e5, &gb_s, err) != 0)
        return -1;
    *bytes = gib * 0x1p30;
    *bandwidth = gb_s * 1e9;
    return read_efficiency(&memory, "MB_efficiency", 1e6, efficiency, err);
}

static int read_mode(struct erg_calculon_system *system, const struct erg_json_place *root,
                     struct erg_error *err)
{
    const char *mode;
    if (erg_json_string(root, "processing_mode", &mode, err) != 0)
        return -1;
    system->roofline = strcmp(mode, "roofline") == 0;
    if (!system->roofline && strcmp(mode, "no_overlap") != 0)
        return erg_json_fail(root, "processing_mode", err,
                             "expected roofline or no_overlap, got '%.80s'", mode);
    return 0;
}

static int read_network(struct erg_calculon_network *network, const struct erg_json_place *place,
                        struct erg_error *err)
{
    double gb_s;
    if (erg_json_double(place, "bandwidth", 0.1, 1e5, &gb_s, err) != 0 ||
        erg_json_double(place, "efficiency", 0.01, 1, &network->efficiency, err) != 0 ||
        erg_json_double(place, "latency", 0, 1, &network->latency_s, err) != 0 ||
        erg_json_long(place, "size", 1, 100000000, &network->size, err) != 0)
        return -1;
    network->bandwidth = gb_s * 1e9;
    return 0;
}

static int read_networks(struct erg_calculon_system *system, const struct erg_json_place *root,
                         struct erg_error *err)
{
    const json_t *list;
    if (erg_json_array(root, "networks", &list, err) != 0)
        return -1;
    size_t count = json_array_size(list);
    if (count == 0)
        return erg_json_fail(root, "networks", err, "expected at least one network");
    system->network_count = count < 2 ? count : 2;
    for (size_t i = 0; i < system->network_count; i++) {
        struct erg_json_place place;
        if (erg_json_enter_item(&place, root, "networks", i, err) != 0 ||
            read_network(&system->networks[i], &place, err) != 0)
            return -1;
    }
    /* A node consists of the GPUs that the first network connects. */
    if (system->networks[0].size > 1024)
        return erg_json_fail(root, "networks", err,
                             "the first one connects the GPUs of a node, expected a size of at "
                             "most 1024, got %ld",
                             system->networks[0].size);
    return 0;
}

int erg_calculon_system_parse(struct erg_calculon_system *system, const char *name,
                              const char *text, size_t length, struct erg_error *err)
{
    json_t *root;
    struct erg_json_place place;
    *system = (struct erg_calculon_system){0};
    if (erg_json_open(&place, &root, name, text, length, err) != 0)
        return -1;
    int status = read_matrix(system, &place, err) ||
                         read_memory(&place, "mem1", 0.1, &system->memory.bytes,
                                     &system->memory.bandwidth, &system->memory.efficiency, err) ||
                         (erg_json_has(&place, "mem2") &&
                          read_memory(&place, "mem2", 0, &system->host.bytes,
                                      &system->host.bandwidth, &system->host.efficiency, err)) ||
                         read_mode(system, &place, err) || read_networks(system, &place, err)
                     ? -1
                     : 0;
    json_decref(root);
    return status;
}
