/* safetensors and files of tokens: what other tools wrote, and what is refused. */
#include "folder.h"

#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json.h"
#include "model/model.h"
#include "ops/bf16.h"
#include "train/data/token_set.h"
#include "train/files/model_file.h"
#include "train/files/safetensors.h"

#include <sys/stat.h>

#define TOKENS ERGON_TEST_SOURCE_DIR "/tests/data/train/tokens/"

/* ---- safetensors ---- */

/* A file in memory: the header's length, the header, `data_bytes` of data. */
static void *make_file(const char *header, size_t data_bytes, size_t *length)
{
    size_t count = strlen(header);
    *length = 8 + count + data_bytes;
    unsigned char *file = erg_xcalloc(*length, 1);
    for (size_t i = 0; i < 8; i++)
        file[i] = (unsigned char)((uint64_t)count >> (8 * i));
    memcpy(file + 8, header, count);
    for (size_t i = 0; i < data_bytes; i++)
        file[8 + count + i] = (unsigned char)(i + 1);
    return file;
}

static void check_file(const char *header, size_t data_bytes, const char *message)
{
    struct erg_safetensors set = {0};
    struct erg_error err;
    size_t length;
    void *file = make_file(header, data_bytes, &length);
    if (message) {
        assert_fails(erg_safetensors_parse(&set, "w.st", file, length, &err), &err, message);
    } else {
        assert_ok(erg_safetensors_parse(&set, "w.st", file, length, &err), &err);
    }
    erg_safetensors_release(&set);
    free(file);
}

#define A "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"

static void headers_are_distrusted(void **state)
{
    (void)state;
    check_file("{" A "}", 8, NULL);
    check_file("{\"__metadata__\":{\"format\":\"pt\"}," A "}   ", 8, NULL);
    check_file("{\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
               "\"e\":{\"dtype\":\"BF16\",\"shape\":[3,0],\"data_offsets\":[4,4]}}",
               4, NULL);
    check_file("{" A "}", 12, "w.st: the tensors end at byte 8 of the data, expected 12");
    check_file("{" A "}", 4, "w.st: key 'a.data_offsets': expected begin and end of [0, 4]");
    check_file("{" A ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
               "tensor 'b' begins at byte 4 of the data, expected 8");
    check_file("{" A ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[12,16]}}", 16,
               "tensor 'b' begins at byte 12 of the data, expected 8");
    check_file("{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8,
               "expected the number of bytes of the shape, got 8");
    check_file(
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0,
        "fewer than 2^64 elements");
    check_file("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}",
               0, "expected the number of bytes of the shape");
    check_file("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,0]}}", 0,
               "expected whole numbers of at least 0");
    check_file("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8,
               "expected begin");
    check_file("{\"a\":{\"dtype\":\"F31\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
               "the type 'F31' is unknown");
    check_file("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}",
               8, "at most 8 dimensions");
    check_file("{\"a\":[]}", 0, "tensor 'a': expected an object");
    check_file("{" A "," A "}", 8, "w.st:1");
    check_file("[]", 0, "w.st");
    struct erg_safetensors set = {0};
    struct erg_error err;
    static const unsigned char huge[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    assert_fails(erg_safetensors_parse(&set, "w.st", huge, sizeof huge, &err), &err,
                 "not a safetensors file");
    assert_fails(erg_safetensors_parse(&set, "w.st", huge, 3, &err), &err,
                 "not a safetensors file");
    erg_safetensors_release(&set);
}

/* Of every length: what is cut off is refused, never read. */
static void cut_files_are_refused(void **state)
{
    (void)state;
    struct erg_safetensors set = {0};
    struct erg_error err;
    size_t length;
    unsigned char *file = make_file("{" A "}", 8, &length);
    for (size_t n = 0; n < length; n++) {
        unsigned char *cut = erg_xmalloc(n + 1); /* of its own, for the address sanitizer */
        memcpy(cut, file, n);
        assert_int_equal(erg_safetensors_parse(&set, "w.st", cut, n, &err), -1);
        erg_safetensors_release(&set);
        free(cut);
    }
    free(file);
}

static void types_are_read_exactly(void **state)
{
    (void)state;
    static const char header[] =
        "{\"h\":{\"dtype\":\"F16\",\"shape\":[6],\"data_offsets\":[0,12]}}";
    static const uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00, 0x8000};
    static const float expected[] = {1, -2, 0x1p-24F, 65504, INFINITY, -0.0F};
    struct erg_safetensors set = {0};
    struct erg_error err;
    size_t length;
    unsigned char *file = make_file(header, sizeof halves, &length);
    memcpy(file + length - sizeof halves, halves, sizeof halves);
    assert_ok(erg_safetensors_parse(&set, "w.st", file, length, &err), &err);
    float values[6];
    assert_ok(erg_safetensor_read(&set.items[0], 0, 6, values, &err), &err);
    assert_memory_equal(values, expected, sizeof expected);
    assert_fails(erg_safetensor_read(&set.items[0], 5, 2, values, &err), &err,
                 "at least 7 elements");
    erg_safetensors_release(&set);
    free(file);
}

/* context: the specs. */
static int fill(void *context, size_t index, float *values, struct erg_error *err)
{
    (void)err;
    const struct erg_safetensor_spec *spec = (const struct erg_safetensor_spec *)context + index;
    size_t count = (size_t)(spec->shape[0] * (spec->dimensions == 2 ? spec->shape[1] : 1));
    for (size_t i = 0; i < count; i++)
        values[i] = 1 + (float)i / 3 + (float)index;
    return 0;
}

static void written_files_are_read_back(void **state)
{
    (void)state;
    struct erg_safetensor_spec specs[] = {{"z", ERG_SAFETENSOR_BF16, 2, {2, 3}},
                                          {"a\n\"b", ERG_SAFETENSOR_F32, 1, {5}}};
    struct erg_safetensors set = {0};
    struct erg_error err;
    assert_ok(erg_safetensors_write(in_folder("w.safetensors"), specs, 2, fill, specs, &err), &err);
    assert_ok(erg_safetensors_open(&set, in_folder("w.safetensors"), &err), &err);
    assert_int_equal(set.count, 2);
    const struct erg_safetensor *z = erg_safetensors_find(&set, "z");
    const struct erg_safetensor *a = erg_safetensors_find(&set, "a\n\"b");
    float values[6];
    assert_ok(erg_safetensor_read(z, 0, 6, values, &err), &err);
    for (size_t i = 0; i < 6; i++)
        assert_near(values[i], erg_bf16_float(erg_bf16_round(1 + (float)i / 3)), 0);
    assert_ok(erg_safetensor_read(a, 0, 5, values, &err), &err);
    for (size_t i = 0; i < 5; i++)
        assert_near(values[i], 1 + (float)i / 3 + 1, 0);
    assert_null(erg_safetensors_find(&set, "b"));
    erg_safetensors_release(&set);
}

/* Two files and their index, whole and with faults. */
static void indexed_folders_are_read(void **state)
{
    (void)state;
    struct erg_safetensor_spec specs[] = {{"z", ERG_SAFETENSOR_F32, 2, {2, 3}},
                                          {"y", ERG_SAFETENSOR_F32, 1, {5}}};
    static const char index[] = "model.safetensors.index.json";
    struct erg_safetensors set = {0};
    struct erg_error err;
    assert_fails(erg_safetensors_open(&set, folder, &err), &err, "the folder has neither");
    assert_ok(erg_safetensors_write(in_folder("1.st"), specs, 1, fill, specs, &err), &err);
    assert_ok(erg_safetensors_write(in_folder("2.st"), specs + 1, 1, fill, specs + 1, &err), &err);
    write_text(index, "{\"weight_map\": {\"y\": \"2.st\", \"z\": \"1.st\"}}");
    assert_ok(erg_safetensors_open(&set, folder, &err), &err);
    assert_int_equal(set.count, 2);
    erg_safetensors_release(&set);
    write_text(index, "{\"weight_map\": {\"y\": \"1.st\", \"z\": \"1.st\"}}");
    assert_fails(erg_safetensors_open(&set, folder, &err), &err, "the tensor is not in the file");
    write_text(index, "{\"weight_map\": {\"x\": \"2.st\", \"z\": \"1.st\"}}");
    assert_fails(erg_safetensors_open(&set, folder, &err), &err, "the tensor is not in the file");
    write_text(index, "{\"weight_map\": {\"z\": \"1.st\"}}");
    assert_ok(erg_safetensors_open(&set, folder, &err), &err);
    erg_safetensors_release(&set);
    write_text(index, "{\"weight_map\": {\"z\": \"../1.st\"}}");
    assert_fails(erg_safetensors_open(&set, folder, &err), &err, "a file in this folder");
    write_text(index, "{\"weight_map\": {\"z\": \"3.st\"}}");
    assert_fails(erg_safetensors_open(&set, folder, &err), &err, "3.st': No such file");
    assert_int_equal(unlink(in_folder(index)), 0);
}

/* ---- models ---- */

/* Files of at most so many bytes of tensors: how many there are, and whether each holds what fits.
 */
static void check_split(const char *folder_name, uint64_t most, size_t files)
{
    struct erg_safetensors set;
    struct erg_error err;
    uint64_t total = 0;
    char *text, name[300];
    size_t length;
    assert_ok(erg_safetensors_open(&set, folder_name, &err), &err);
    for (size_t file = 1; file <= files; file++) {
        uint64_t bytes = 0;
        size_t tensors = 0;
        snprintf(name, sizeof name, "%s/model-%05zu-of-%05zu.safetensors", folder_name, file,
                 files);
        for (size_t i = 0; i < set.count; i++)
            if (strcmp(set.items[i].file, name) == 0) {
                bytes += set.items[i].bytes;
                tensors++;
            }
        assert_true(tensors > 0 && (bytes <= most || tensors == 1));
        total += bytes;
    }
    erg_safetensors_release(&set);
    snprintf(name, sizeof name, "%s/model.safetensors.index.json", folder_name);
    assert_ok(erg_file_read(name, 0, &text, &length, &err), &err);
    json_t *index = json_loads(text, 0, NULL);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")),
        total);
    json_decref(index);
    free(text);
}

/* What does not fit into one file is written into several, and loading it is the identity. */
static void large_models_are_split(void **state)
{
    (void)state;
    static const char config[] =
        "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 16, \"intermediate_size\": "
        "24, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"vocab_size\": 100, "
        "\"rms_norm_eps\": 1e-6, \"tie_word_embeddings\": false}";
    static const struct {
        uint64_t most;
        size_t files;
    } splits[] = {{1 << 20, 0}, {15264, 0}, {15263, 2}, {5000, 4}, {1, 21}};
    struct erg_model *model;
    struct erg_error err;
    struct erg_rng rng;
    assert_ok(erg_model_parse(&model, "config", config, strlen(config), &err), &err);
    struct erg_layer_range layers = {0, model->layers};
    struct erg_weights_request request = erg_weights_whole(model, &layers);
    struct erg_weights weights;
    struct erg_weight_spans spans;
    erg_weights_init(&weights, &request);
    erg_weight_spans_init(&spans, &weights, &request);
    float *wanted = erg_xcalloc(weights.state, sizeof *wanted);
    float *found = erg_xcalloc(weights.state, sizeof *found);
    erg_rng_seed(&rng, 3);
    for (size_t i = 0; i < spans.count; i++)
        for (size_t row = 0; row < spans.items[i].rows; row++)
            for (size_t column = 0; column < spans.items[i].columns; column++)
                wanted[erg_weight_span_here(&spans.items[i], row, column)] =
                    erg_bf16_float(erg_bf16_round((float)erg_rng_below(&rng, 1000) - 500));
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        char name[40], *path;
        snprintf(name, sizeof name, "split-%zu", i);
        path = erg_xstrdup(in_folder(name));
        assert_ok(erg_model_file_write(path, wanted, &spans, model, true, splits[i].most, &err),
                  &err);
        if (splits[i].files)
            check_split(path, splits[i].most, splits[i].files);
        memset(found, 0xff, weights.state * sizeof *found);
        assert_ok(erg_model_file_load(found, &weights, &spans, model, path, &err), &err);
        assert_memory_equal(found, wanted, weights.state * sizeof *found);
        assert_fails(erg_model_file_write(path, wanted, &spans, model, true, 1 << 20, &err), &err,
                     "it is not replaced");
        free(path);
    }
    free(found);
    free(wanted);
    erg_weight_spans_release(&spans);
    erg_weights_release(&weights);
    erg_model_free(model);
}

/* ---- tokens ---- */

static void all_formats_have_the_same_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        enum erg_token_type type;
    } files[] = {{TOKENS "tokens.int32", ERG_TOKENS_INT32},
                 {TOKENS "tokens.int32", ERG_TOKENS_UINT32},
                 {TOKENS "tokens.bin", ERG_TOKENS_OF_FILE},
                 {TOKENS "tokens", ERG_TOKENS_OF_FILE},
                 {TOKENS "tokens32.bin", ERG_TOKENS_OF_FILE},
                 {TOKENS "tokens.bin", ERG_TOKENS_UINT16},
                 {TOKENS "tokens.llmc.bin", ERG_TOKENS_OF_FILE},
                 {TOKENS "tokens.llmc32.bin", ERG_TOKENS_OF_FILE}};
    char *bytes;
    size_t length;
    struct erg_error err;
    assert_ok(erg_file_read(TOKENS "tokens.int32", 0, &bytes, &length, &err), &err);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct erg_token_set set = {0};
        assert_ok(erg_token_set_add(&set, files[i].file, files[i].type, &err), &err);
        assert_ok(erg_token_set_add(&set, files[0].file, files[0].type, &err), &err);
        assert_int_equal(set.tokens, 2 * 11805);
        int32_t ids[11805];
        assert_ok(erg_token_set_read(&set, 0, 11805, 512, ids, &err), &err);
        assert_memory_equal(ids, bytes, length);
        assert_ok(erg_token_set_read(&set, 11805 - 7, 20, 512, ids, &err),
                  &err); /* over the seam */
        assert_memory_equal(ids, bytes + length - 28, 28);
        assert_memory_equal(ids + 7, bytes, 52);
        assert_fails(erg_token_set_read(&set, 2 * 11805 - 3, 5, 512, ids, &err), &err,
                     "expected 2 more");
        assert_fails(erg_token_set_read(&set, 0, 11805, 100, ids, &err), &err,
                     "expected a word of the model, [0, 100)");
        erg_token_set_release(&set);
    }
    free(bytes);
}

static void check_index(size_t at, unsigned char byte, const char *message)
{
    char *bytes;
    size_t length;
    struct erg_token_index index;
    struct erg_error err;
    assert_ok(erg_file_read(TOKENS "tokens.idx", 0, &bytes, &length, &err), &err);
    bytes[at] = (char)byte;
    assert_fails(erg_token_index_parse(&index, "t.idx", bytes, length, 23610, &err), &err, message);
    free(bytes);
}

static void bad_tokens_are_refused(void **state)
{
    (void)state;
    struct erg_token_set set = {0};
    struct erg_error err;
    check_index(0, 'X', "t.idx: not an index of Megatron's data");
    check_index(9, 2, "not an index of Megatron's data, version 1");
    check_index(17, 6, "byte 17: tokens of type 6");
    check_index(24, 0xff, "do not fit into its");
    check_index(32, 0xff, "do not fit into its");
    check_index(37, 0xff, "sequence 0 has -");
    check_index(34, 1, "sequence 1 begins at byte");
    check_index(34 + 12 * 118, 1, "document 0 begins at sequence 1");
    write_text("three", "abc");
    assert_fails(erg_token_set_add(&set, in_folder("three"), ERG_TOKENS_UINT16, &err), &err,
                 "3 bytes are not a whole number of tokens of 2 bytes");
    assert_fails(erg_token_set_add(&set, in_folder("three"), ERG_TOKENS_OF_FILE, &err), &err,
                 "expected tokens of llm.c, or a file PREFIX.idx");
    write_text("empty", "");
    assert_fails(erg_token_set_add(&set, in_folder("empty"), ERG_TOKENS_UINT16, &err), &err,
                 "expected a file with tokens");
    assert_fails(erg_token_set_add(&set, in_folder("none"), ERG_TOKENS_UINT16, &err), &err,
                 "No such file");
    static const int32_t negative[] = {1, -1};
    int32_t ids[2];
    assert_ok(erg_file_write(in_folder("negative"), negative, sizeof negative, &err), &err);
    assert_ok(erg_token_set_add(&set, in_folder("negative"), ERG_TOKENS_INT32, &err), &err);
    assert_fails(erg_token_set_read(&set, 0, 2, 512, ids, &err), &err, "token 1 is -1");
    erg_token_set_release(&set);
    /* Megatron's data: also in which sequence. Two of them, of three and two tokens. */
    static const unsigned char two[] = {
        'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, /* version */
        8,                                                               /* uint16 */
        2,   0,   0,   0,   0,   0,   0,   0, 0, 0, 0, 0, 0, 0, 0, 0, 3,
        0,   0,   0,   2,   0,   0,   0, /* lengths, then offsets */
        0,   0,   0,   0,   0,   0,   0,   0, 6, 0, 0, 0, 0, 0, 0, 0};
    static const uint16_t words[] = {1, 2, 3, 4, 600};
    int32_t five[5];
    assert_ok(erg_file_write(in_folder("two.idx"), two, sizeof two, &err), &err);
    assert_ok(erg_file_write(in_folder("two.bin"), words, sizeof words, &err), &err);
    assert_ok(erg_token_set_add(&set, in_folder("two"), ERG_TOKENS_OF_FILE, &err), &err);
    assert_fails(erg_token_set_read(&set, 0, 5, 512, five, &err), &err,
                 "two.bin: token 4 (token 1 of sequence 1) is 600, expected a word of the model");
    erg_token_set_release(&set);
}

/* Positions are 64 bits wide: a sparse file of 5 GB is read at its end. */
static void large_files_are_read(void **state)
{
    (void)state;
    struct erg_token_set set = {0};
    struct erg_error err;
    const off_t bytes = (off_t)5 << 30;
    static const uint16_t last = 7;
    FILE *file = fopen(in_folder("large"), "we");
    assert_non_null(file);
    assert_int_equal(fseeko(file, bytes - 2, SEEK_SET), 0);
    assert_int_equal(fwrite(&last, 2, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    int32_t ids[2];
    assert_ok(erg_token_set_add(&set, in_folder("large"), ERG_TOKENS_UINT16, &err), &err);
    assert_ok(erg_token_set_read(&set, (uint64_t)bytes / 2 - 2, 2, 10, ids, &err), &err);
    assert_int_equal(ids[0], 0);
    assert_int_equal(ids[1], 7);
    erg_token_set_release(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_are_distrusted),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(types_are_read_exactly),
        cmocka_unit_test(written_files_are_read_back),
        cmocka_unit_test(indexed_folders_are_read),
        cmocka_unit_test(large_models_are_split),
        cmocka_unit_test(all_formats_have_the_same_tokens),
        cmocka_unit_test(bad_tokens_are_refused),
        cmocka_unit_test(large_files_are_read),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
