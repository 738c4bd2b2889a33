/*
 * What the tests of commands on GPUs share: a folder of their own, and the program over the fake
 * NVML with a script.
 */
#ifndef ERGON_TESTS_COMMANDS_H
#define ERGON_TESTS_COMMANDS_H

#include "folder.h"
#include "program.h"

#include "io/file.h"
#include "io/json.h"

/* Two GPUs at 100 W and 250 W whose counters move every 50 ms. */
#define QUIET_WORLD                                                                                \
    "gpus 2\n"                                                                                     \
    "gpu 0 power 0=100\n"                                                                          \
    "gpu 1 power 0=250\n"                                                                          \
    "gpu * counter 0.05 0.01\n"                                                                    \
    "gpu * temperature 61 58\n"                                                                    \
    "gpu * clock 1980\n"                                                                           \
    "gpu * pcie 1e9 2e9\n"                                                                         \
    "gpu * nvlink 100e9 120e9 18 together\n"                                                       \
    "gpu * limit 700\n"

static inline int commands_begin(void **state)
{
    /* The energy of this machine's CPUs is none of the tests' business. */
    setenv("ERGON_POWERCAP", "/nonexistent", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    return make_folder(state);
}

/* Programs that are run after this see these GPUs; NULL: no driver. */
static inline void set_world(const char *script)
{
    struct erg_error err;
    setenv("ERGON_NVML", script ? ERGON_TEST_FAKE_NVML : "/nonexistent/libnvidia-ml.so.1", 1);
    if (!script)
        return;
    assert_ok(erg_file_write(in_folder("world"), script, strlen(script), &err), &err);
    setenv("ERGON_FAKE_NVML", in_folder("world"), 1);
}

static inline double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("the key %s has no number", key);
    return json_number_value(value);
}

/* Runs and reads standard output as JSON. */
static inline json_t *run_json(const char *arguments, int exit_code)
{
    struct program_result result = run_program(arguments);
    struct erg_error err;
    json_t *root;
    if (result.exit_code != exit_code)
        fail_msg("ergon %s: exit code %d, expected %d:\n%s", arguments, result.exit_code, exit_code,
                 result.out.data);
    assert_ok(erg_json_parse(&root, arguments, result.out.data, result.out.count, &err), &err);
    assert_int_equal(json_integer_value(json_object_get(root, "schema_version")), 1);
    erg_text_release(&result.out);
    return root;
}

/* A number at the end of a path of keys and indices: "gpus.1.energy_j.mean". */
static inline json_t *json_at(json_t *root, const char *path)
{
    char word[64];
    for (json_t *at = root;; path += strlen(word) + 1) { /* ends at the last word */
        snprintf(word, sizeof word, "%.*s", (int)strcspn(path, "."), path);
        at = json_is_array(at) ? json_array_get(at, (size_t)atol(word)) : json_object_get(at, word);
        if (!at)
            fail_msg("there is no %s", path);
        if (!path[strlen(word)])
            return at;
    }
}

static inline double number_at(json_t *root, const char *path)
{
    json_t *value = json_at(root, path);
    if (!json_is_number(value))
        fail_msg("%s is no number", path);
    return json_number_value(value);
}

static inline const char *text_at(json_t *root, const char *path)
{
    json_t *value = json_at(root, path);
    if (!json_is_string(value))
        fail_msg("%s is no text", path);
    return json_string_value(value);
}

#endif
