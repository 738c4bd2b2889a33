/* Functions shared by the public functions in api/. */
#include "api/door.h"

#include "base/memory.h"
#include "base/text.h"
#include "io/json.h"

#include <math.h>
#include <string.h>

int erg_door_choice(int *index, const char *option, const char *word, enum erg_word_list list,
                    struct erg_error *err)
{
    const char *const *choices = erg_words(list);
    *index = -1;
    if (!word)
        return 0;
    for (int i = 0; choices[i]; i++)
        if (strcmp(choices[i], word) == 0) {
            *index = i;
            return 0;
        }
    const char *meant = erg_closest(word, choices);
    struct erg_text names = {0};
    erg_text_add_names(&names, choices);
    erg_fail(err, ERG_USAGE, "%s got '%.80s'%s%s%s; expected one of %s", option, word,
             meant ? ", did you mean '" : "", meant ? meant : "", meant ? "'?" : "", names.data);
    erg_text_release(&names);
    return -1;
}

int erg_door_number(long *number, const char *option, int64_t given, long most,
                    struct erg_error *err)
{
    *number = given ? (long)given : ERG_NOT_GIVEN;
    if (given >= 0 && given <= most)
        return 0;
    return erg_fail(err, ERG_USAGE, "%s got %lld, expected a number from 1 to %ld", option,
                    (long long)given, most);
}

int erg_door_amount(double *amount, const char *option, double given, struct erg_error *err)
{
    *amount = given > 0 ? given : NAN;
    if (given >= 0 && isfinite(given))
        return 0;
    return erg_fail(err, ERG_USAGE, "%s got %.10g, expected a number above 0", option, given);
}

char *erg_door_json(json_t *document)
{
    char *text = erg_json_text(document);
    json_decref(document);
    return text;
}

const char *erg_door_copy(struct erg_arena *arena, const char *text)
{
    return text ? erg_arena_strdup(arena, text) : NULL;
}
