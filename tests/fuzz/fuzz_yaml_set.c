/* libFuzzer: any bytes as YAML in which keys are set. What comes out is YAML with that key. */
#include "io/yaml.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void set(const struct erg_yaml *yaml, const char *key, const char *value)
{
    struct erg_error err;
    struct erg_yaml *again;
    struct erg_text text = {0};
    if (erg_yaml_set(&text, yaml, key, value, &err) == 0) {
        if (erg_yaml_open_text(&again, "again.yaml", text.data, text.count, &err) != 0 ||
            !erg_yaml_has(again, key))
            abort();
        erg_yaml_close(again);
    }
    erg_text_release(&text);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    static const char *const keys[] = {"model", "cluster.nodes", "cluster", "search.new", "a.b.c"};
    static const char *const values[] = {"1", "[1, 2]", "\"a: b\"", "{x: {y: 1}}"};
    struct erg_error err;
    struct erg_yaml *yaml;
    if (erg_yaml_open_text(&yaml, "fuzz.yaml", (const char *)data, size, &err) != 0)
        return 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        for (size_t k = 0; k < sizeof values / sizeof *values; k++)
            set(yaml, keys[i], values[k]);
    erg_yaml_close(yaml);
    /* And as a value. */
    char *text = malloc(size + 1);
    if (!text || erg_yaml_open_text(&yaml, "plain.yaml", "a: 1\nb: {c: 2}\n", 15, &err) != 0)
        abort();
    for (size_t i = 0; i < size; i++)
        text[i] = (char)data[i];
    text[size] = '\0';
    set(yaml, "a", text);
    set(yaml, "b.c", text);
    set(yaml, "b.d", text);
    erg_yaml_close(yaml);
    free(text);
    return 0;
}
