/* Figures: selects those of a study and writes them next to its points. */
#include "report/figures/figures.h"
#include "report/figures/figures_internal.h"

#include "io/file.h"

#include <stdio.h>
#include <stdlib.h>

static const int all_figures[] = {4, 5, 8, 10, 13, 15, 17};
enum { ALL = sizeof all_figures / sizeof *all_figures };

static bool is_wanted(const struct erg_collection *collection,
                      const struct erg_figures_input *input, int number)
{
    const int *numbers = input->count ? input->numbers : collection->figures;
    const size_t count = input->count ? input->count : collection->figure_count;
    for (size_t i = 0; i < count; i++)
        if (numbers[i] == number)
            return true;
    return count == 0;
}

static bool make(struct figure *figure, const struct erg_collection *collection,
                 const struct erg_figures_input *input)
{
    switch (figure->number) {
    case 5:
    case 17:
        return erg_figure_maps(figure, collection);
    case 10:
    case 15:
        return erg_figure_bars(figure, collection);
    default:
        return erg_figure_panels(figure, collection, input->right);
    }
}

static int write_text(const char *folder, const char *name, const struct erg_text *text,
                      struct erg_error *err)
{
    char *path = erg_file_path(folder, name);
    int result = erg_file_write(path, text->data, text->count, err);
    free(path);
    return result;
}

static int write_figure(const char *folder, const struct figure *figure, struct erg_error *err)
{
    char name[32];
    struct erg_text svg = {0};
    erg_figure_svg(&svg, figure);
    snprintf(name, sizeof name, "fig%02d.svg", figure->number);
    int result = write_text(folder, name, &svg, err);
    snprintf(name, sizeof name, "fig%02d.csv", figure->number);
    if (result == 0)
        result = write_text(folder, name, &figure->csv, err);
    erg_text_release(&svg);
    return result;
}

int erg_figures_write(const char *folder, const struct erg_collection *collection,
                      const struct erg_figures_input *input, struct erg_error *err)
{
    struct figure figures[ALL] = {0};
    size_t count = 0;
    char *own = erg_file_path(folder, "figures");
    int result = erg_dir_make(own, err);
    for (size_t i = 0; i < ALL && result == 0; i++) {
        struct figure *figure = &figures[count];
        figure->number = all_figures[i];
        if (!is_wanted(collection, input, figure->number))
            continue;
        if (make(figure, collection, input)) {
            result = write_figure(own, figure, err);
            count++;
        } else {
            erg_figure_release(figure);
            *figure = (struct figure){0};
        }
    }
    if (result == 0) {
        struct erg_text page = {0};
        erg_figure_page(&page, figures, count, collection, input->findings);
        result = write_text(folder, "report.html", &page, err);
        erg_text_release(&page);
    }
    for (size_t i = 0; i < count; i++)
        erg_figure_release(&figures[i]);
    free(own);
    return result;
}
