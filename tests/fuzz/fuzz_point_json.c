/* libFuzzer: any bytes as the result of a point. What is accepted is written as it was read. */
#include "characterize/result.h"

#include "base/memory.h"
#include "io/json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static json_t *read(struct erg_study_result *result, const char *text, size_t length,
                    struct erg_arena *arena)
{
    struct erg_error err;
    json_t *root;
    if (erg_json_parse(&root, "point.json", text, length, &err) != 0)
        return NULL;
    if (erg_study_result_from_json(result, root, "point.json", text, length, arena, &err) == 0)
        return root;
    json_decref(root);
    return NULL;
}

static char *write(const struct erg_study_result *result)
{
    json_t *root = erg_study_result_json(result);
    char *text = erg_json_text(root);
    json_decref(root);
    return text;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_arena arena = {0};
    struct erg_study_result result, again;
    json_t *root = read(&result, (const char *)data, size, &arena);
    if (root) {
        char *text = write(&result);
        json_t *same = read(&again, text, strlen(text), &arena);
        if (!same)
            abort();
        char *text_again = write(&again);
        if (strcmp(text, text_again) != 0)
            abort();
        free(text);
        free(text_again);
        json_decref(same);
        json_decref(root);
    }
    erg_arena_release(&arena);
    return 0;
}
