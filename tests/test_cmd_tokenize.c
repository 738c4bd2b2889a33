/* ergon tokenize: token files as Megatron's own tools write them, from text and JSON lines. */
#include "folder.h"
#include "program.h"

#include "io/file.h"
#include "io/json.h"
#include "train/data/token_writer.h"

#define DATA ERGON_TEST_SOURCE_DIR "/tests/data/train/"

/* The documents of tokens.int32, each of which ends with id 0. */
static void write_golden(const char *name, long words)
{
    char *bytes;
    size_t length;
    struct erg_error err;
    struct erg_token_writer *writer;
    assert_ok(erg_file_read(DATA "tokens/tokens.int32", 0, &bytes, &length, &err), &err);
    const int32_t *ids = (const int32_t *)(const void *)bytes;
    assert_ok(erg_token_writer_open(&writer, in_folder(name), words, &err), &err);
    for (size_t i = 0, first = 0; i < length / 4; i++)
        if (ids[i] == 0) {
            assert_ok(erg_token_writer_add(writer, ids + first, i + 1 - first, &err), &err);
            first = i + 1;
        }
    struct erg_token_totals totals = erg_token_writer_totals(writer);
    assert_int_equal(totals.documents, 118);
    assert_int_equal(totals.tokens, 11805);
    char path[160];
    snprintf(path, sizeof path, "%s.bin", in_folder(name));
    assert_int_equal(access(path, F_OK), -1); /* not before it is closed */
    assert_ok(erg_token_writer_close(writer, &err), &err);
    free(bytes);
}

static void files_are_those_of_megatron(void **state)
{
    (void)state;
    write_golden("narrow", 65536);
    assert_same_bytes(in_folder("narrow.bin"), DATA "tokens/tokens.bin");
    assert_same_bytes(in_folder("narrow.idx"), DATA "tokens/tokens.idx");
    write_golden("wide", 65537);
    assert_same_bytes(in_folder("wide.bin"), DATA "tokens/tokens32.bin");
    assert_same_bytes(in_folder("wide.idx"), DATA "tokens/tokens32.idx");
}

static void ids_beyond_the_words_are_refused(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_token_writer *writer;
    assert_ok(erg_token_writer_open(&writer, in_folder("beyond"), 65536, &err), &err);
    assert_ok(erg_token_writer_add(writer, (const int32_t[]){65535}, 1, &err), &err);
    assert_fails(erg_token_writer_add(writer, (const int32_t[]){1, 65536}, 2, &err), &err,
                 "beyond.bin': document 1, token 1: id 65536, expected one of [0, 65536)");
    assert_fails(erg_token_writer_add(writer, (const int32_t[]){-1}, 1, &err), &err, "id -1");
    erg_token_writer_abandon(writer);
    assert_int_equal(access(in_folder("beyond.bin"), F_OK), -1);
}

/* Runs "tokenize ARGUMENTS" with @ for the folder. */
static void check(int exit_code, const char *part, const char *arguments)
{
    struct erg_text command = {0}, line;
    erg_text_printf(&command, "tokenize %s 2>&1", arguments);
    line = with_folder(command.data);
    check_program(line.data, exit_code, part);
    erg_text_release(&command);
    erg_text_release(&line);
}

static void text_and_json_lines_become_tokens(void **state)
{
    (void)state;
    write_text("a.txt", "caf\xc3\xa9");
    write_text("bad.txt", "x\xff");
    write_text("empty.txt", "");
    write_text("lines.jsonl",
               "{\"id\": 1, \"body\": \"ab\"}\r\n\n{\"body\": \"\"}\n{\"body\": \"c\"}");
    check(
        0,
        "2 documents, 11 tokens of 2 bytes, 0.78 bytes of text per token; 1 without text left out",
        "bytes @/a.txt @/bad.txt @/empty.txt -o @/plain");
    static const uint16_t plain[] = {'c', 'a', 'f', 0xc3, 0xa9, 256, 'x', 0xef, 0xbf, 0xbd, 256};
    char *bytes;
    size_t length;
    struct erg_error err;
    assert_ok(erg_file_read(in_folder("plain.bin"), 0, &bytes, &length, &err), &err);
    assert_int_equal(length, sizeof plain);
    assert_memory_equal(bytes, plain, length);
    free(bytes);

    struct erg_text line = {0};
    erg_text_printf(&line, "tokenize bytes %s/lines.jsonl --key body -e 65 -o %s/lines --json",
                    folder, folder);
    struct program_result result = run_program(line.data);
    assert_int_equal(result.exit_code, 0);
    json_t *document = json_loads(result.out.data, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(document, "documents")), 2);
    assert_int_equal(json_integer_value(json_object_get(document, "empty_documents")), 1);
    assert_int_equal(json_integer_value(json_object_get(document, "tokens")), 5);
    assert_int_equal(json_integer_value(json_object_get(document, "end_token")), 65);
    assert_near(json_real_value(json_object_get(document, "text_bytes_per_token")), 1, 0);
    json_decref(document);
    erg_text_release(&result.out);
    erg_text_release(&line);
}

static void model_sets_the_end_of_document_token(void **state)
{
    (void)state;
    char command[512];
    snprintf(command, sizeof command,
             "mkdir '%s/model' && cp '%s/tokenizers/gpt2/tokenizer.json' '%s/model'", folder, DATA,
             folder);
    assert_int_equal(system(command), 0);
    write_text("b.txt", "the");
    check(1, "/model has no end-of-document token; expected --end TOKEN", "@/model @/b.txt -o @/x");
    write_text("model/tokenizer_config.json", "{\"eos_token\": {\"content\": \"<|end|>\"}}");
    check(0, "1 document", "@/model @/b.txt -o @/one");
    write_text("model/config.json", "{\"eos_token_id\": [7, 8]}");
    check(0, "\"end_token\": 7", "@/model @/b.txt -o @/two --json");
    check(0, "\"end_token\": 0", "@/model @/b.txt -o @/three --json -e '<|end|>'");
    write_text("model/config.json", "{\"eos_token_id\": 400}");
    check(1, "the token that ends a document is 400; expected an id of [0, 400)",
          "@/model @/b.txt -o @/four");
    write_text("model/config.json", "{\"eos_token_id\": \"x\"}");
    check(1, "config.json:1: key 'eos_token_id': expected the id", "@/model @/b.txt -o @/four");
}

static void bad_input_names_the_place(void **state)
{
    (void)state;
    write_text("c.txt", "text");
    check(1, "nothing.json': No such file", "@/nothing.json @/c.txt -o @/e");
    check(1, "the folder has no tokenizer.json", "@ @/c.txt -o @/e");
    check(1, "none.txt': No such file", "bytes @/c.txt @/none.txt -o @/e");
    check(1, "--end: 'z' is not a token of bytes", "bytes @/c.txt -o @/e --end z");
    check(2, "--output", "bytes @/c.txt");
    write_text("bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 5}\n");
    check(1, "bad.jsonl:2: key 'text': expected the text of a document",
          "bytes @/bad.jsonl -k text -o @/e");
    check(1, "bad.jsonl:1: key 'body': expected the text of a document; the line lacks this key",
          "bytes @/bad.jsonl -k body -o @/e");
    write_text("torn.jsonl", "{\"text\": \"a\"}\n{\"text\": \n");
    check(1, "torn.jsonl:2: expected a line of JSON", "bytes @/torn.jsonl -k text -o @/e");
    write_text("nothing.txt", "");
    check(1, "no file has text", "bytes @/nothing.txt -o @/e");
    assert_int_equal(access(in_folder("e.bin"), F_OK), -1);
    check(0, "1 document", "bytes @/c.txt -o @/e");
    check(1, "e.bin': this file exists", "bytes @/c.txt -o @/e");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_those_of_megatron),
        cmocka_unit_test(ids_beyond_the_words_are_refused),
        cmocka_unit_test(text_and_json_lines_become_tokens),
        cmocka_unit_test(model_sets_the_end_of_document_token),
        cmocka_unit_test(bad_input_names_the_place),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
