/* io/yaml: what a document may say, and the one sentence for each way to get it wrong. */
#include "check.h"

#include "io/yaml.h"

#include <stdbool.h>

enum recompute { RECOMPUTE_NONE, RECOMPUTE_FULL };

struct inner {
    int nodes;
    char *gpu;
    double rate;
    unsigned char small;
};

struct outer {
    struct inner cluster;
    int *layers;
    unsigned layers_count;
    enum recompute recompute;
    bool tied;
    char *note;
};

static const cyaml_schema_field_t inner_fields[] = {
    CYAML_FIELD_INT("nodes", CYAML_FLAG_DEFAULT, struct inner, nodes),
    CYAML_FIELD_STRING_PTR("gpu", CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER, struct inner, gpu, 1,
                           12),
    CYAML_FIELD_FLOAT("rate", CYAML_FLAG_OPTIONAL, struct inner, rate),
    CYAML_FIELD_UINT("small", CYAML_FLAG_OPTIONAL, struct inner, small),
    CYAML_FIELD_END,
};
static const cyaml_strval_t recompute_names[] = {{"none", RECOMPUTE_NONE},
                                                 {"full", RECOMPUTE_FULL}};
static const cyaml_schema_value_t layer = {CYAML_VALUE_INT(CYAML_FLAG_DEFAULT, int)};
static const cyaml_schema_field_t outer_fields[] = {
    CYAML_FIELD_MAPPING("cluster", CYAML_FLAG_DEFAULT, struct outer, cluster, inner_fields),
    CYAML_FIELD_SEQUENCE("layers", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct outer, layers,
                         &layer, 1, 3),
    CYAML_FIELD_ENUM("recompute", CYAML_FLAG_STRICT | CYAML_FLAG_OPTIONAL, struct outer, recompute,
                     recompute_names, 2),
    CYAML_FIELD_BOOL("tied", CYAML_FLAG_OPTIONAL, struct outer, tied),
    CYAML_FIELD_STRING_PTR("note", CYAML_FLAG_POINTER_NULL | CYAML_FLAG_OPTIONAL, struct outer,
                           note, 0, CYAML_UNLIMITED),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct outer, outer_fields)};

static int parse(const char *text, void **value, struct erg_error *err)
{
    struct erg_yaml *yaml;
    if (erg_yaml_open_text(&yaml, "job.yaml", text, strlen(text), err) != 0)
        return -1;
    int result = erg_yaml_read(yaml, &schema, value, err);
    erg_yaml_close(yaml);
    return result;
}

static void good_document_fills_the_struct(void **state)
{
    (void)state;
    struct erg_error err;
    void *value;
    const char text[] = "# a comment\n"
                        "cluster: {nodes: 2, gpu: A100, rate: 2.5e11, small: 255}\n"
                        "layers:\n  - 15\n  - 13\n"
                        "recompute: full\ntied: no\nnote:\n";
    assert_ok(parse(text, &value, &err), &err);
    const struct outer *outer = value;
    assert_int_equal(outer->cluster.nodes, 2);
    assert_string_equal(outer->cluster.gpu, "A100");
    assert_near(outer->cluster.rate, 2.5e11, 0);
    assert_int_equal(outer->cluster.small, 255);
    assert_int_equal(outer->layers_count, 2);
    assert_int_equal(outer->layers[1], 13);
    assert_int_equal(outer->recompute, RECOMPUTE_FULL);
    assert_false(outer->tied);
    assert_null(outer->note);
    erg_yaml_free(&schema, value);
}

static void every_mistake_has_its_sentence(void **state)
{
    (void)state;
    const struct {
        const char *text, *message;
    } cases[] = {
        {"cluster:\n  nodes: 1\n  nods: 2\n",
         "job.yaml:3: unknown key 'cluster.nods'; did you mean 'nodes'?"},
        {"cluster:\n  nodes: 1\nweather: fine\n",
         "job.yaml:3: unknown key 'weather'; expected one of: cluster, layers, recompute, "
         "tied, note"},
        {"note: x\ncluster:\n  gpu: A100\n", "job.yaml:3: the key 'cluster.nodes' is missing"},
        {"note: x\n", "job.yaml:1: the key 'cluster' is missing"},
        {"cluster:\n  nodes: two\n",
         "job.yaml:2: key 'cluster.nodes': expected a whole number, got 'two'"},
        {"cluster:\n  nodes: 1.5\n", "expected a whole number, got '1.5'"},
        {"cluster:\n  nodes: 010\n", "expected a whole number, got '010'"},
        {"cluster:\n  nodes: 0x10\n", "expected a whole number, got '0x10'"},
        {"cluster:\n  nodes:\n", "job.yaml:2: key 'cluster.nodes': expected a whole number, got "
                                 "nothing"},
        {"cluster:\n  nodes: [1]\n", "expected a whole number, got a list"},
        {"cluster:\n  nodes: {a: 1}\n", "expected a whole number, got a group of keys"},
        {"cluster:\n  nodes: 99999999999\n",
         "expected a whole number from -2147483648 to 2147483647, got '99999999999'"},
        {"cluster:\n  nodes: 1\n  small: 256\n",
         "expected a whole number from 0 to 255, got '256'"},
        {"cluster:\n  nodes: 1\n  small: -1\n", "expected a whole number of at least 0, got '-1'"},
        {"cluster:\n  nodes: 1\n  rate: fast\n",
         "job.yaml:3: key 'cluster.rate': expected a number, got 'fast'"},
        {"cluster:\n  nodes: 1\n  rate: nan\n", "expected a number, got 'nan'"},
        {"cluster:\n  nodes: 1\n  rate: 1e999\n", "expected a number, got '1e999'"},
        {"cluster:\n  nodes: 1\n  gpu: ''\n", "expected at least 1 characters, got ''"},
        {"cluster:\n  nodes: 1\n  gpu: abcdefghijklm\n", "expected at most 12 characters, got 13"},
        {"cluster:\n  nodes: 1\n  nodes: 2\n",
         "job.yaml:3: key 'cluster.nodes': the key appears twice, first on line 2"},
        {"cluster: 3\n", "job.yaml:1: key 'cluster': expected a group of keys (key: value), got "
                         "'3'"},
        {"cluster: {nodes: 1}\nlayers: 3\n", "job.yaml:2: key 'layers': expected a list"},
        {"cluster: {nodes: 1}\nlayers: []\n", "expected at least 1 entries, got 0"},
        {"cluster: {nodes: 1}\nlayers: [1, 2, 3, 4]\n", "expected at most 3 entries, got 4"},
        {"cluster: {nodes: 1}\nlayers:\n- 1\n- x\n",
         "job.yaml:4: key 'layers[1]': expected a whole number, got 'x'"},
        {"cluster: {nodes: 1}\nrecompute: ful\n",
         "job.yaml:2: key 'recompute': unknown value 'ful'; did you mean 'full'?"},
        {"cluster: {nodes: 1}\nrecompute: selective\n",
         "expected one of none, full, got 'selective'"},
        {"cluster: {nodes: 1}\ntied: maybe\n", "key 'tied': expected true or false, got 'maybe'"},
        {"cluster: {nodes: 1}\nnote: \"a\\0b\"\n", "the value holds a zero byte"},
        {"cluster:\n  ? [a]\n  : 1\n", "expected plain words as keys"},
        {"cluster: &a {nodes: 1}\nnote: *a\n", "expected text, got a group of keys"},
        {"note: &a x\ncluster: {nodes: 1, gpu: *a}\n", "an alias (*name) is used here"},
        {"cluster: {nodes: *none}\n", "job.yaml:1: this is not valid YAML"},
        {"cluster:\n nodes: 1\n  gpu: x\n", "job.yaml:3: this is not valid YAML"},
        {"cluster:\n  nodes: 1\n\tgpu: x\n", "job.yaml:3: this is not valid YAML"},
        {"cluster: {nodes: 1}\n---\ncluster: {nodes: 2}\n",
         "job.yaml:3: a second YAML document starts here"},
        {"cluster: \xff\xfe\n", "job.yaml:1: this is not valid YAML"},
        {"cluster:\n  nodes: 1\n  gpu: caf\xe9\n", "job.yaml:3: this is not valid YAML"},
        {"- 1\n", "job.yaml:1: expected a group of keys (key: value), got a list"},
        {"", "job.yaml:1: the document is empty, expected the keys: cluster"},
        {"# only a comment\n", "the document is empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_error err = {0};
        void *value;
        int result = parse(cases[i].text, &value, &err);
        if (result == 0 || !strstr(err.message, cases[i].message))
            fail_msg("document %zu:\n%s\nsaid \"%s\", expected \"%s\"", i, cases[i].text,
                     result ? err.message : "nothing", cases[i].message);
    }
}

static void nested_brackets_do_not_take_minutes(void **state)
{
    (void)state;
    enum { DEPTH = 200000 };
    struct erg_error err;
    struct erg_yaml *yaml;
    char *text = malloc(DEPTH);
    memset(text, '[', DEPTH);
    assert_fails(erg_yaml_open_text(&yaml, "job.yaml", text, DEPTH, &err), &err,
                 "job.yaml:1: brackets are nested more than 200 deep");
    free(text);
}

static void lines_are_known_after_loading(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_yaml *yaml;
    const char text[] = "note: x\n"
                        "cluster:\n"
                        "  nodes: 9\n"
                        "layers:\n"
                        "  - 15\n"
                        "  - 13\n";
    assert_ok(erg_yaml_open_text(&yaml, "job.yaml", text, strlen(text), &err), &err);
    assert_true(erg_yaml_has(yaml, "cluster.nodes"));
    assert_false(erg_yaml_has(yaml, "cluster.gpu"));
    assert_true(erg_yaml_has(yaml, "layers[1]"));
    assert_false(erg_yaml_has(yaml, "layers[2]"));
    assert_int_equal(erg_yaml_line(yaml, "cluster.nodes"), 3);
    assert_int_equal(erg_yaml_line(yaml, "cluster.gpu"), 3);
    assert_int_equal(erg_yaml_line(yaml, "layers[1]"), 6);
    assert_int_equal(erg_yaml_line(yaml, "recompute"), 1);
    assert_fails(erg_yaml_fail(yaml, "layers[0]", &err, "%d is too many", 15), &err,
                 "job.yaml:5: key 'layers[0]': 15 is too many");
    assert_ok(erg_yaml_check_range(yaml, "cluster.nodes", 9, 1, 9, &err), &err);
    assert_fails(erg_yaml_check_range(yaml, "cluster.nodes", 9, 1, 8, &err), &err,
                 "job.yaml:3: key 'cluster.nodes': expected a number from 1 to 8, got 9");
    assert_fails(erg_yaml_check_range(yaml, "cluster.nodes", 9, 10, INFINITY, &err), &err,
                 "expected a number of at least 10, got 9");
    erg_yaml_close(yaml);
    assert_fails(erg_yaml_open(&yaml, "/nonexistent/job.yaml", &err), &err,
                 "/nonexistent/job.yaml': No such file");
}

/* Any text is written so that it is read as the same one, here and, for words, by other readers. */
static void strings_are_read_as_written(void **state)
{
    (void)state;
    struct one {
        char *value;
    };
    static const cyaml_schema_field_t fields[] = {
        CYAML_FIELD_STRING_PTR("value", CYAML_FLAG_POINTER, struct one, value, 0, 4000),
        CYAML_FIELD_END,
    };
    static const cyaml_schema_value_t one_schema = {
        CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct one, fields),
    };
    static const struct {
        const char *text, *written;
    } texts[] = {
        {"llama-3.2-1b", "llama-3.2-1b"},
        {"/models/my model/config.json", "/models/my model/config.json"},
        {"my run: v2", "\"my run: v2\""},
        {"- x", "\"- x\""},
        {"{a", "\"{a\""},
        {"*star", "\"*star\""},
        {"run #2", "\"run #2\""},
        {"yes", "\"yes\""},
        {"No", "\"No\""},
        {"null", "\"null\""},
        {"~", "\"~\""},
        {"1e3", "\"1e3\""},
        {".5", "\".5\""},
        {"0x10", "\"0x10\""},
        {"2026-01-01", "\"2026-01-01\""},
        {"", "\"\""},
        {" x", "\" x\""},
        {"x ", "\"x \""},
        {"say \"hi\" \\ 'you'", "\"say \\\"hi\\\" \\\\ 'you'\""},
        {"two\nlines: 1\r\n\tthree", "\"two\\x0alines: 1\\x0d\\x0a\\x09three\""},
        {"x\ngoal: fastest", "\"x\\x0agoal: fastest\""},
        {"\x01\x1b[31m\x7f", NULL},
        {"f\u00fcr \u4f60\u597d \U0001f600", NULL},
        {"\xc2\x85 \u2028 \u2029 \ufeff \ufffe", NULL},
        {"a, b]", NULL},
        {"---", NULL},
        {"...", NULL},
        {"%YAML", NULL},
        {"&a", NULL},
        {"!tag", NULL},
        {"?", NULL},
        {"| x", NULL},
        {"> x", NULL},
        {"@x", NULL},
        {"`x", NULL},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct erg_error err;
        struct erg_text document = {0};
        struct erg_yaml *yaml;
        void *read;
        erg_text_add(&document, "value: ");
        erg_yaml_add_string(&document, texts[i].text);
        if (texts[i].written)
            assert_string_equal(document.data + strlen("value: "), texts[i].written);
        erg_text_add(&document, "\n");
        assert_ok(erg_yaml_open_text(&yaml, "t", document.data, document.count, &err), &err);
        assert_ok(erg_yaml_read(yaml, &one_schema, &read, &err), &err);
        assert_string_equal(((struct one *)read)->value, texts[i].text);
        erg_yaml_free(&one_schema, read);
        erg_yaml_close(yaml);
        erg_text_release(&document);
    }
    /* Every character below U+0800 alone, and in the middle. */
    for (unsigned code = 1; code < 0x800; code++) {
        struct erg_error err;
        struct erg_text document = {0}, text = {0};
        struct erg_yaml *yaml;
        void *read;
        if (code < 0x80)
            erg_text_printf(&text, "%cb%c%c", (int)code, (int)code, 'c');
        else
            erg_text_printf(&text, "%c%cb%c%cc", (int)(0xc0 | code >> 6), (int)(0x80 | (code & 63)),
                            (int)(0xc0 | code >> 6), (int)(0x80 | (code & 63)));
        erg_text_add(&document, "value: ");
        erg_yaml_add_string(&document, text.data);
        erg_text_add(&document, "\n");
        assert_ok(erg_yaml_open_text(&yaml, "t", document.data, document.count, &err), &err);
        assert_ok(erg_yaml_read(yaml, &one_schema, &read, &err), &err);
        assert_string_equal(((struct one *)read)->value, text.data);
        erg_yaml_free(&one_schema, read);
        erg_yaml_close(yaml);
        erg_text_release(&document);
        erg_text_release(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_document_fills_the_struct),
        cmocka_unit_test(every_mistake_has_its_sentence),
        cmocka_unit_test(nested_brackets_do_not_take_minutes),
        cmocka_unit_test(lines_are_known_after_loading),
        cmocka_unit_test(strings_are_read_as_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
