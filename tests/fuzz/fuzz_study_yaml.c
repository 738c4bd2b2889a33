/* libFuzzer: any bytes as the file of a study. What is accepted has points, each with marks. */
#include "as_file.h"

#include "characterize/study.h"

#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_study *study;
    struct erg_error err;
    const struct erg_study_change change = {.transient_s = NAN};
    if (erg_study_load(&study, as_file(data, size), &change, &err) != 0)
        return 0;
    if (study->mark_count < study->point_count || study->point_count < 1)
        abort();
    for (size_t i = 0; i < study->mark_count; i++)
        if (study->marks[i].point >= study->point_count || !*study->marks[i].name)
            abort();
    for (size_t i = 0; i < study->point_count; i++)
        if (strlen(study->points[i].id) != 16)
            abort();
    json_t *document = erg_study_document(study);
    if (!document)
        abort();
    json_decref(document);
    erg_study_free(study);
    return 0;
}
