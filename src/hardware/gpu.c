/* GPUs as data: the sections of a catalogue file, their units and limits. */
#include "hardware/catalogue.h"

#include "base/random.h"
#include "base/text.h"
#include "io/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/*
 * One line per whole number: section, key in the file, member, smallest and largest value; or the
 * member that selects it, where there is one.
 */
#define DATASHEET_WHOLES(X)                                                                        \
    X(datasheet, sms, sms, 1, name, 10000, name)                                                   \
    X(datasheet, clock_max_mhz, clock_max_mhz, 1, name, 100000, name)                              \
    X(datasheet, clock_min_mhz, clock_min_mhz, 1, name, 0, clock_max_mhz)                          \
    X(datasheet, clock_step_mhz, clock_step_mhz, 1, name, 0, clock_max_mhz)
#define SEARCH_WHOLES(X)                                                                           \
    X(search_clocks, max_mhz, search_max_mhz, 0, clock_min_mhz, 0, clock_max_mhz)                  \
    X(search_clocks, min_mhz, search_min_mhz, 0, clock_min_mhz, 0, search_max_mhz)                 \
    X(search_clocks, step_mhz, search_step_mhz, 1, name, 0, clock_max_mhz)
#define COMPUTE_WHOLES(X)                                                                          \
    X(compute, gemm_tile_m, gemm_tile_m, 1, name, 4096, name)                                      \
    X(compute, gemm_tile_n, gemm_tile_n, 1, name, 4096, name)
#define LIBRARY_WHOLES(X) X(communication, library_blocks, library_blocks, 1, name, 1024, name)

/*
 * One line per number: section, key in the file, member, factor from the file's unit to the
 * member's, smallest and largest value in the file's unit. The lists make both the schema and the
 * table of units.
 */
#define DATASHEET_NUMBERS(X)                                                                       \
    X(datasheet, flops_per_sm_clock, flops_per_sm_clock, 1, 1, 1e6)                                \
    X(datasheet, memory_bandwidth_gb_s, memory_bandwidth, 1e9, 1, 1e6)                             \
    X(datasheet, link_bandwidth_gb_s, link_bandwidth, 1e9, 0.1, 1e6)                               \
    X(datasheet, board_power_w, board_power_w, 1, 1, 1e5)                                          \
    X(datasheet, memory_gib, memory_bytes, 0x1p30, 0.1, 1e5)

#define COMPUTE_NUMBERS(X)                                                                         \
    X(compute, gemm_efficiency, gemm_efficiency, 1, 0.01, 2)                                       \
    X(compute, gemm_k0, gemm_k0, 1, 0, 1e5)                                                        \
    X(compute, wave_weight, wave_weight, 1, 0, 10)                                                 \
    X(compute, attention_forward_efficiency, attention_forward, 1, 0.01, 2)                        \
    X(compute, attention_backward_efficiency, attention_backward, 1, 0.01, 2)                      \
    X(compute, memory_efficiency, memory_efficiency, 1, 0.01, 1.5)                                 \
    X(compute, memory_issue, memory_issue, 1, 0.1, 100)                                            \
    X(compute, launch_gap_us, launch_gap_s, 1e-6, 0, 1e4)                                          \
    X(compute, head_gemm_factor, head_gemm_factor, 1, 0.01, 10)

/* Keys that older files lack: their default is 0, except that factors are 1 and the backward k0
 * equals k0. */
#define COMPUTE_OPTIONS(X)                                                                         \
    X(compute, attention_k0, attention_k0, 1, 0, 1e5)                                              \
    X(compute, attention_backward_k0, attention_backward_k0, 1, 0, 1e5)                            \
    X(compute, attention_tail, attention_tail, 1, 0, 10)                                           \
    X(compute, attention_diagonal, attention_diagonal, 1, 0, 1)                                    \
    X(compute, attention_waves, attention_waves, 1, 0, 1)                                          \
    X(compute, attention_softmax, attention_softmax, 1, 0, 0.9)                                    \
    X(compute, attention_backward_softmax, attention_backward_softmax, 1, 0, 0.9)                  \
    X(compute, gemm_slack, gemm_slack, 1, 0, 1)
#define COMMUNICATION_OPTIONS(X)                                                                   \
    X(communication, rank_power, comm_rank_power, 1, 0, 4)                                         \
    X(communication, gather_rate, comm_gather, 1, 0.01, 10)                                        \
    X(communication, scatter_rate, comm_scatter, 1, 0.01, 10)                                      \
    X(communication, missed_sms, comm_missed_sms, 1, 0, 100)
#define POWER_OPTIONS(X)                                                                           \
    X(power, attention_forward_energy, attention_forward_energy, 1, 0.01, 100)                     \
    X(power, attention_backward_energy, attention_backward_energy, 1, 0.01, 100)                   \
    X(power, hbm_voltage_share, hbm_voltage_share, 1, 0, 1)

#define COMMUNICATION_NUMBERS(X)                                                                   \
    X(communication, sm_rate_gb_s, comm_sm_rate, 1e9, 0.01, 1e5)                                   \
    X(communication, link_factor, comm_link_factor, 1, 0.01, 1)                                    \
    X(communication, latency_us, comm_latency_s, 1e-6, 0, 1e6)                                     \
    X(communication, blend, comm_blend, 1, 0.5, 100)                                               \
    X(communication, clock_power, comm_clock_power, 1, 0, 2)                                       \
    X(communication, contention, comm_contention, 1, 0, 0.99)                                      \
    X(communication, sm_share, comm_sm_share, 1, 0, 100)                                           \
    X(communication, hbm_per_wire_byte, comm_hbm_per_wire, 1, 0, 100)                              \
    X(communication, library_link_factor, library_link_factor, 1, 0.01, 1)                         \
    X(communication, library_sm_share, library_sm_share, 1, 0, 100)

#define POWER_NUMBERS(X)                                                                           \
    X(power, static_w, static_power_w, 1, 1, 1e4)                                                  \
    X(power, active_w, active_power_w, 1, 0, 1e4)                                                  \
    X(power, flop_pj, energy_per_flop_j, 1e-12, 0, 1e3)                                            \
    X(power, hbm_byte_pj, energy_per_hbm_byte_j, 1e-12, 0, 1e5)                                    \
    X(power, wire_byte_pj, energy_per_wire_byte_j, 1e-12, 0, 1e5)                                  \
    X(power, spin_w_per_sm, spin_power_w, 1, 0, 1e3)                                               \
    X(power, voltage_knee_mhz, voltage_knee_mhz, 1, 1, 1e5)                                        \
    X(power, voltage_slope_per_ghz, voltage_slope_per_ghz, 1, 0, 100)                              \
    X(power, voltage_slope_low_per_ghz, voltage_slope_low_per_ghz, 1, 0, 100)                      \
    X(power, cap_w, power_cap_w, 1, 1, 1e5)                                                        \
    X(power, cap_softness_mhz, cap_softness_mhz, 1, 0.1, 1e3)                                      \
    X(power, cap_dither_mhz, cap_dither_mhz, 1, 0, 1e3)                                            \
    X(power, blocking_w, blocking_power_w, 1, 0, 1e4)                                              \
    X(power, idle_w, idle_power_w, 1, 0, 1e4)

#define HEAT_NUMBERS(X)                                                                            \
    X(heat, resistance_k_per_w, thermal_resistance_k_per_w, 1, 0, 10)                              \
    X(heat, time_constant_s, thermal_time_s, 1, 0.01, 1e5)                                         \
    X(heat, ambient_c, ambient_c, 1, -50, 100)                                                     \
    X(heat, reference_c, reference_c, 1, -50, 150)                                                 \
    X(heat, leak_per_k, leak_per_k, 1, 0, 0.1)                                                     \
    X(heat, sensor_period_ms, sensor_period_s, 1e-3, 1, 1e4)

#define FIELD(section, name, member, factor, min, max)                                             \
    CYAML_FIELD_FLOAT(#name, CYAML_FLAG_DEFAULT, struct erg_gpu, member),
#define OPTION(section, name, member, factor, min, max)                                            \
    CYAML_FIELD_FLOAT(#name, CYAML_FLAG_OPTIONAL, struct erg_gpu, member),
#define QUANTITY(section, name, member, factor, min, max)                                          \
    {#section "." #name, offsetof(struct erg_gpu, member), (factor), (min), (max)},
#define INTEGER(section, name, member, ...)                                                        \
    CYAML_FIELD_INT(#name, CYAML_FLAG_DEFAULT, struct erg_gpu, member),

static const cyaml_schema_field_t datasheet_fields[] = {
    DATASHEET_WHOLES(INTEGER) DATASHEET_NUMBERS(FIELD)
        CYAML_FIELD_FLOAT("peak_tflops", CYAML_FLAG_OPTIONAL, struct erg_gpu, stated_flops),
    CYAML_FIELD_INT("cap_group", CYAML_FLAG_OPTIONAL, struct erg_gpu, cap_group),
    CYAML_FIELD_FLOAT("board_link_bandwidth_gb_s", CYAML_FLAG_OPTIONAL, struct erg_gpu,
                      board_link_bandwidth),
    CYAML_FIELD_END};
static const cyaml_schema_field_t search_fields[] = {SEARCH_WHOLES(INTEGER) CYAML_FIELD_END};
static const cyaml_schema_field_t compute_fields[] = {
    COMPUTE_WHOLES(INTEGER) COMPUTE_NUMBERS(FIELD) COMPUTE_OPTIONS(OPTION) CYAML_FIELD_END,
};
static const cyaml_schema_field_t communication_fields[] = {
    COMMUNICATION_NUMBERS(FIELD) COMMUNICATION_OPTIONS(OPTION)
        CYAML_FIELD_BOOL("persistent_gemm", CYAML_FLAG_DEFAULT, struct erg_gpu, persistent_gemm),
    LIBRARY_WHOLES(INTEGER) CYAML_FIELD_END,
};
static const cyaml_schema_field_t power_fields[] = {POWER_NUMBERS(FIELD) POWER_OPTIONS(OPTION)
                                                        CYAML_FIELD_END};
static const cyaml_schema_field_t heat_fields[] = {HEAT_NUMBERS(FIELD) CYAML_FIELD_END};

/* A section groups keys in the file; its members lie in the GPU itself. */
#define SECTION(name, presence, list)                                                              \
    {                                                                                              \
        .key = name, .value = {                                                                    \
            .type = CYAML_MAPPING,                                                                 \
            .flags = presence,                                                                     \
            .data_size = sizeof(struct erg_gpu),                                                   \
            .mapping = {.fields = list},                                                           \
        }                                                                                          \
    }

static const cyaml_schema_value_t driver_name = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 1, 200)};

static const cyaml_schema_field_t fields[] = {
    CYAML_FIELD_STRING_PTR("name", CYAML_FLAG_POINTER, struct erg_gpu, name, 1, 200),
    CYAML_FIELD_SEQUENCE("driver_names", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct erg_gpu,
                         driver_names, &driver_name, 1, 16),
    CYAML_FIELD_STRING_PTR("confidence", CYAML_FLAG_POINTER, struct erg_gpu, confidence, 1, 400),
    SECTION("datasheet", CYAML_FLAG_DEFAULT, datasheet_fields),
    SECTION("search_clocks", CYAML_FLAG_DEFAULT, search_fields),
    SECTION("compute", CYAML_FLAG_DEFAULT, compute_fields),
    SECTION("communication", CYAML_FLAG_DEFAULT, communication_fields),
    SECTION("power", CYAML_FLAG_DEFAULT, power_fields),
    SECTION("heat", CYAML_FLAG_DEFAULT, heat_fields),
    CYAML_FIELD_IGNORE("curve", CYAML_FLAG_OPTIONAL), /* older versions wrote it */
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct erg_gpu, fields),
};

static const struct erg_quantity quantities[] = {
    DATASHEET_NUMBERS(QUANTITY) COMPUTE_NUMBERS(QUANTITY) COMPUTE_OPTIONS(QUANTITY)
        COMMUNICATION_NUMBERS(QUANTITY) COMMUNICATION_OPTIONS(QUANTITY) POWER_NUMBERS(QUANTITY)
            POWER_OPTIONS(QUANTITY) HEAT_NUMBERS(QUANTITY){NULL, 0, 0, 0, 0}};

#define OFFSET(member) offsetof(struct erg_gpu, member)
#define WHOLE(section, name, member, min, min_of, max, max_of)                                     \
    {#section "." #name, OFFSET(member), false, min, OFFSET(min_of), max, OFFSET(max_of)},

/* The numbers without a unit to convert. */
static const struct whole {
    const char *key;
    size_t offset;
    bool is_bool;
    int min;
    size_t min_of; /* an int that is the smallest value; that of the name: `min` */
    int max;
    size_t max_of;
} wholes[] = {DATASHEET_WHOLES(WHOLE) SEARCH_WHOLES(WHOLE) COMPUTE_WHOLES(WHOLE){
                  "communication.persistent_gemm", OFFSET(persistent_gemm), true, 0, 0, 0, 0},
              LIBRARY_WHOLES(WHOLE)};
enum { WHOLES = sizeof wholes / sizeof *wholes };

static int *whole_at(struct erg_gpu *gpu, size_t offset)
{
    return (int *)(void *)((char *)gpu + offset);
}

static int check_wholes(struct erg_gpu *gpu, const struct erg_yaml *yaml, struct erg_error *err)
{
    for (const struct whole *at = wholes; at < wholes + WHOLES; at++) {
        int min = at->min_of != OFFSET(name) ? *whole_at(gpu, at->min_of) : at->min;
        int max = at->max_of != OFFSET(name) ? *whole_at(gpu, at->max_of) : at->max;
        if (!at->is_bool &&
            erg_yaml_check_range(yaml, at->key, *whole_at(gpu, at->offset), min, max, err) != 0)
            return -1;
    }
    if (gpu->search_step_mhz % gpu->clock_step_mhz != 0)
        return erg_yaml_fail(yaml, "search_clocks.step_mhz", err,
                             "expected a multiple of the %d MHz in which the clock can be set, got "
                             "%d",
                             gpu->clock_step_mhz, gpu->search_step_mhz);
    return 0;
}

/* This is not a quantity: no measurement depends on it, so no fingerprint includes it. */
static const char peak_key[] = "datasheet.peak_tflops";

static int finish_peak(struct erg_gpu *gpu, const struct erg_yaml *yaml, struct erg_error *err)
{
    double highest = 1e-12 * erg_gpu_peak_flops(gpu);
    double tflops = erg_yaml_has(yaml, peak_key) ? gpu->stated_flops : highest;
    gpu->stated_flops = 1e12 * tflops;
    return erg_yaml_check_range(yaml, peak_key, tflops, 0.5 * highest, 2 * highest, err);
}

/* Likewise: one GPU alone is what it is. */
static const char group_key[] = "datasheet.cap_group";
static const char board_link_key[] = "datasheet.board_link_bandwidth_gb_s";

static int finish_group(struct erg_gpu *gpu, const struct erg_yaml *yaml, struct erg_error *err)
{
    if (!erg_yaml_has(yaml, group_key))
        gpu->cap_group = 1;
    if (erg_yaml_check_range(yaml, group_key, gpu->cap_group, 1, 64, err) != 0)
        return -1;
    if (!erg_yaml_has(yaml, board_link_key))
        return 0;
    if (gpu->cap_group == 1)
        return erg_yaml_fail(yaml, board_link_key, err,
                             "expected it with a cap_group of at least 2, the GPUs of a board");
    const double least = 1e-9 * gpu->link_bandwidth, own = gpu->board_link_bandwidth;
    gpu->board_link_bandwidth *= 1e9;
    return erg_yaml_check_range(yaml, board_link_key, own, least, 1e6, err);
}

static int finish(void *value, const struct erg_yaml *yaml, struct erg_error *err)
{
    struct erg_gpu *gpu = value;
    erg_name_make_printable(&gpu->name);
    erg_name_make_printable(&gpu->confidence);
    if (check_wholes(gpu, yaml, err) != 0 ||
        erg_quantities_finish(gpu, quantities, yaml, "", err) != 0 ||
        finish_peak(gpu, yaml, err) != 0 || finish_group(gpu, yaml, err) != 0)
        return -1;
    if (!erg_yaml_has(yaml, "compute.attention_backward_k0"))
        gpu->attention_backward_k0 = gpu->attention_k0;
    if (!erg_yaml_has(yaml, "communication.gather_rate"))
        gpu->comm_gather = 1;
    if (!erg_yaml_has(yaml, "communication.scatter_rate"))
        gpu->comm_scatter = 1;
    if (!erg_yaml_has(yaml, "power.attention_forward_energy"))
        gpu->attention_forward_energy = 1;
    if (!erg_yaml_has(yaml, "power.attention_backward_energy"))
        gpu->attention_backward_energy = 1;
    if (gpu->blocking_power_w < gpu->static_power_w)
        return erg_yaml_fail(yaml, "power.blocking_w", err,
                             "a GPU that waits draws at least its static power, expected %g or "
                             "more, got %g",
                             gpu->static_power_w, gpu->blocking_power_w);
    if (gpu->power_cap_w < gpu->static_power_w)
        return erg_yaml_fail(yaml, "power.cap_w", err,
                             "no clock is low enough for a cap below the static power, expected %g "
                             "or more, got %g",
                             gpu->static_power_w, gpu->power_cap_w);
    /* Static power must not feed itself: the die would heat without end. */
    double feedback = gpu->thermal_resistance_k_per_w * gpu->static_power_w * gpu->leak_per_k;
    if (feedback > 0.5)
        return erg_yaml_fail(yaml, "heat.leak_per_k", err,
                             "with this thermal resistance and static power the die would run "
                             "away, expected at most %.3g",
                             0.5 * gpu->leak_per_k / feedback);
    return 0;
}

static const struct erg_catalogue catalogue = {"gpus", "GPU", &schema, finish};

static bool has_driver_name(const char *entry, const char *name)
{
    struct erg_error ignored;
    void *value;
    bool has = false;
    if (erg_catalogue_load(&value, &catalogue, entry, &ignored) != 0)
        return false;
    const struct erg_gpu *gpu = value;
    for (unsigned i = 0; i < gpu->driver_names_count; i++)
        has |= strcasecmp(gpu->driver_names[i], name) == 0;
    erg_gpu_free(value);
    return has;
}

int erg_gpu_load(struct erg_gpu **gpu, const char *name, struct erg_error *err)
{
    void *value;
    char *path = erg_catalogue_path("gpus", name);
    struct erg_arena arena = {0};
    const char *const *entry = path ? NULL : erg_data_names("gpus", &arena);
    while (entry && *entry && !has_driver_name(*entry, name))
        entry++;
    const int status = erg_catalogue_load(&value, &catalogue, entry && *entry ? *entry : name, err);
    erg_arena_release(&arena);
    free(path);
    if (status != 0)
        return -1;
    *gpu = value;
    return 0;
}

void erg_gpu_free(struct erg_gpu *gpu)
{
    erg_yaml_free(&schema, gpu);
}

void erg_gpu_clamp(struct erg_gpu *gpu)
{
    for (const struct erg_quantity *quantity = quantities; quantity->key; quantity++) {
        double *number = (double *)(void *)((char *)gpu + quantity->offset);
        *number =
            fmin(fmax(*number, quantity->min * quantity->factor), quantity->max * quantity->factor);
    }
}

uint64_t erg_gpu_fingerprint(const struct erg_gpu *gpu)
{
    const int integers[] = {gpu->sms,
                            gpu->clock_max_mhz,
                            gpu->clock_min_mhz,
                            gpu->clock_step_mhz,
                            gpu->persistent_gemm,
                            gpu->library_blocks};
    uint64_t hash = erg_hash_text(gpu->name);
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        hash = erg_hash_u64(hash, (uint64_t)integers[i]);
    if (gpu->board_link_bandwidth > 0)
        hash = erg_hash_u64(hash, (uint64_t)gpu->board_link_bandwidth);
    return erg_quantities_hash(gpu, quantities, hash);
}

static bool in_section(const char *key, const char *section)
{
    size_t length = strlen(section);
    return !strncmp(key, section, length) && key[length] == '.';
}

static void copy_member(struct erg_gpu *to, const struct erg_gpu *from, size_t offset, size_t bytes)
{
    memcpy((char *)to + offset, (const char *)from + offset, bytes);
}

int erg_gpu_take_datasheet(struct erg_gpu *gpu, const struct erg_gpu *board, struct erg_error *err)
{
    if (gpu->flops_per_sm_clock != board->flops_per_sm_clock)
        return erg_fail(err, ERG_FAILED,
                        "taking the constants of %s for %s: its SMs do %g FLOP per clock, those of "
                        "%s %g; expected GPUs of one architecture",
                        gpu->name, board->name, gpu->flops_per_sm_clock, board->name,
                        board->flops_per_sm_clock);
    gpu->power_cap_w *= board->board_power_w / gpu->board_power_w;
    for (size_t i = 0; i < WHOLES; i++)
        if (in_section(wholes[i].key, "datasheet") || in_section(wholes[i].key, "search_clocks"))
            copy_member(gpu, board, wholes[i].offset, sizeof(int));
    for (size_t i = 0; quantities[i].key; i++)
        if (in_section(quantities[i].key, "datasheet"))
            copy_member(gpu, board, quantities[i].offset, sizeof(double));
    gpu->stated_flops = board->stated_flops;
    gpu->cap_group = board->cap_group;
    gpu->board_link_bandwidth = board->board_link_bandwidth;
    return 0;
}

/* ---- writing ---- */

struct writer {
    const struct erg_gpu *gpu;
    struct erg_text text;
    const char *(*origin)(const void *context, size_t member);
    const void *context;
};

static void write_line(struct writer *writer, const char *key, size_t member, const char *value)
{
    const char *name = strchr(key, '.') + 1;
    int used = (int)(strlen(name) + strlen(value));
    erg_text_printf(&writer->text, "  %s: %s%*s # %s\n", name, value, used < 38 ? 38 - used : 0, "",
                    writer->origin(writer->context, member));
}

static void write_section(struct writer *writer, const char *section)
{
    const char *gpu = (const char *)writer->gpu;
    char value[40];
    erg_text_printf(&writer->text, "\n%s:\n", section);
    for (size_t i = 0; i < WHOLES; i++) {
        if (!in_section(wholes[i].key, section))
            continue;
        const void *member = gpu + wholes[i].offset;
        if (wholes[i].is_bool)
            snprintf(value, sizeof value, "%s", *(const bool *)member ? "true" : "false");
        else
            snprintf(value, sizeof value, "%d", *(const int *)member);
        write_line(writer, wholes[i].key, wholes[i].offset, value);
    }
    for (size_t i = 0; quantities[i].key; i++) {
        if (!in_section(quantities[i].key, section))
            continue;
        const void *member = gpu + quantities[i].offset;
        snprintf(value, sizeof value, "%.6g", *(const double *)member / quantities[i].factor);
        write_line(writer, quantities[i].key, quantities[i].offset, value);
    }
    if (in_section(peak_key, section)) {
        snprintf(value, sizeof value, "%.6g", 1e-12 * writer->gpu->stated_flops);
        write_line(writer, peak_key, OFFSET(stated_flops), value);
    }
    if (in_section(group_key, section) && writer->gpu->cap_group > 1) {
        snprintf(value, sizeof value, "%d", writer->gpu->cap_group);
        write_line(writer, group_key, OFFSET(cap_group), value);
    }
    if (in_section(board_link_key, section) && writer->gpu->board_link_bandwidth > 0) {
        snprintf(value, sizeof value, "%.6g", 1e-9 * writer->gpu->board_link_bandwidth);
        write_line(writer, board_link_key, OFFSET(board_link_bandwidth), value);
    }
}

int erg_gpu_write(const struct erg_gpu *gpu, const char *path, const char *heading,
                  const char *(*origin)(const void *context, size_t member), const void *context,
                  struct erg_error *err)
{
    static const char *const sections[] = {"datasheet",     "search_clocks", "compute",
                                           "communication", "power",         "heat"};
    struct writer writer = {gpu, {0}, origin, context};
    erg_catalogue_add_heading(&writer.text, heading);
    erg_text_add(&writer.text, "\nname: ");
    erg_yaml_add_string(&writer.text, gpu->name);
    erg_text_add(&writer.text, "\nconfidence: ");
    erg_yaml_add_string(&writer.text, gpu->confidence);
    erg_text_add(&writer.text, "\n");
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        write_section(&writer, sections[i]);
    int status = erg_file_write(path, writer.text.data, writer.text.count, err);
    erg_text_release(&writer.text);
    return status;
}
