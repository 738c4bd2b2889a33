/* Reads and writes the tuner's profile file. */
#include "hooks/tune_profile.h"

#include "base/memory.h"
#include "io/file.h"
#include "io/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_POINTS = 10000 };

static const char *key_of(int knob)
{
    return knob == ERG_TUNE_CLOCK ? "clock_mhz" : "power_limit";
}

static int read_points(const struct erg_json_place *place, int knob, struct erg_tune_point *points,
                       size_t count, struct erg_error *err)
{
    for (size_t i = 0; i < count; i++) {
        struct erg_json_place item;
        long value, blocks = 0;
        double time_s, energy_j;
        if (erg_json_enter_item(&item, place, "measurements", i, err) ||
            erg_json_long(&item, key_of(knob), 1, 1000000, &value, err) ||
            erg_json_double(&item, "energy", 1e-12, 1e18, &energy_j, err) ||
            erg_json_double(&item, "time", 1e-12, 1e12, &time_s, err) ||
            (erg_json_has(&item, "blocks") &&
             erg_json_long(&item, "blocks", 1, 1000000000, &blocks, err)))
            return -1;
        points[i] = (struct erg_tune_point){.size = sizeof points[i],
                                            .value = (int32_t)value,
                                            .blocks = (int32_t)blocks,
                                            .time_s = time_s,
                                            .energy_j = energy_j,
                                            .time_uncertainty_s = NAN,
                                            .energy_uncertainty_j = NAN};
        for (size_t k = 0; k < i; k++)
            if (points[k].value == points[i].value)
                return erg_json_fail(&item, key_of(knob), err,
                                     "expected each value once, got %ld twice", value);
    }
    return 0;
}

static int read_document(const struct erg_json_place *place, int knob,
                         struct erg_tune_point **points, size_t *count, bool *per_step,
                         struct erg_error *err)
{
    const json_t *list;
    const char *per = "";
    if (erg_json_array(place, "measurements", &list, err) ||
        (erg_json_has(place, "per") && erg_json_string(place, "per", &per, err)))
        return -1;
    *count = json_array_size(list);
    *per_step = strcmp(per, "step") == 0;
    if (*count < 1 || *count > MOST_POINTS)
        return erg_json_fail(place, "measurements", err, "expected 1 to %d measurements, got %zu",
                             MOST_POINTS, *count);
    *points = erg_xcalloc(*count, sizeof **points);
    if (read_points(place, knob, *points, *count, err) == 0)
        return 0;
    free(*points);
    *points = NULL;
    return -1;
}

int erg_tune_profile_read(const char *path, int knob, struct erg_tune_point **points, size_t *count,
                          bool *per_step, struct erg_error *err)
{
    struct erg_json_place place;
    char *text;
    size_t length;
    json_t *root;
    if (erg_file_read(path, ERG_FILE_SMALL_BYTES, &text, &length, err) != 0)
        return -1;
    int result = erg_json_open(&place, &root, path, text, length, err);
    if (result == 0) {
        result = read_document(&place, knob, points, count, per_step, err);
        json_decref(root);
    }
    free(text);
    return result;
}

int erg_tune_profile_write(const char *path, int knob, const struct erg_tune_point *points,
                           size_t count, struct erg_error *err)
{
    json_t *list = json_array();
    for (size_t i = count; i-- > 0;) { /* highest first, as in Zeus */
        json_t *item = json_object();
        json_object_set_new(item, key_of(knob), json_integer(points[i].value));
        json_object_set_new(item, "energy", erg_json_number(points[i].energy_j));
        json_object_set_new(item, "time", erg_json_number(points[i].time_s));
        json_object_set_new(item, "energy_uncertainty",
                            erg_json_number(points[i].energy_uncertainty_j));
        json_object_set_new(item, "time_uncertainty",
                            erg_json_number(points[i].time_uncertainty_s));
        json_object_set_new(item, "blocks", json_integer(points[i].blocks));
        json_array_append_new(list, item);
    }
    json_t *root = erg_json_pack("{s:s, s:o}", "per", "step", "measurements", list);
    int result = erg_json_write(path, root, err);
    json_decref(root);
    return result;
}
