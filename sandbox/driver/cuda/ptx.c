/* A reader for as much of PTX as the simulation needs: directives, not instructions. */
#include "ptx.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Skips blanks and comments. */
static const char *skip(const char *at)
{
    for (;;) {
        while (isspace((unsigned char)*at))
            at++;
        const char *end = at;
        if (at[0] == '/' && at[1] == '/')
            end = strchr(at, '\n');
        else if (at[0] == '/' && at[1] == '*')
            end = strstr(at, "*/");
        if (end == at)
            return at;
        if (end == NULL)
            return at + strlen(at);
        at = end + (at[1] == '*' ? 2 : 1);
    }
}

static size_t word_length(const char *at)
{
    size_t length = 0;
    while (isalnum((unsigned char)at[length]) || strchr("._$%@", at[length] == '\0' ? ' ' : at[length]) != NULL)
        length++;
    return length;
}

/* Takes the next word if there is one of that text. */
static bool take(const char **at, const char *word)
{
    const char *here = skip(*at);
    size_t length = word_length(here);
    if (length != strlen(word) || strncmp(here, word, length) != 0)
        return false;
    *at = here + length;
    return true;
}

static bool take_char(const char **at, char c)
{
    const char *here = skip(*at);
    if (*here != c)
        return false;
    *at = here + 1;
    return true;
}

static char *take_name(const char **at)
{
    const char *here = skip(*at);
    size_t length = word_length(here);
    *at = here + length;
    return length == 0 ? NULL : strndup(here, length);
}

/* Bytes of a type such as .u64, .b8, .f32; 0 for what is no type. */
static size_t type_size(const char *word, size_t length)
{
    if (length < 3 || word[0] != '.' || strchr("usbf", word[1]) == NULL || !isdigit((unsigned char)word[2]))
        return 0;
    return strtoul(word + 2, NULL, 10) / 8;
}

/* One declaration: [.align N] .type [.ptr …] name [array]. */
struct declaration {
    size_t element, alignment, count;
    bool integer; /* .u64, .s64, .b64 */
    char *name;
};

static bool read_declaration(const char **at, struct declaration *out)
{
    *out = (struct declaration){.count = 1};
    for (*at = skip(*at); **at == '.'; *at = skip(*at)) {
        size_t length = word_length(*at);
        size_t size = type_size(*at, length);
        bool align = length == 6 && strncmp(*at, ".align", length) == 0;
        if (size != 0) {
            out->element = size;
            out->integer = size == 8 && (*at)[1] != 'f';
        }
        *at += length;
        if (align)
            out->alignment = strtoul(*at, (char **)at, 10);
    }
    out->name = take_name(at);
    if (take_char(at, '[')) {
        out->count = strtoul(skip(*at), (char **)at, 10);
        out->integer = false;
        if (!take_char(at, ']'))
            return false;
    }
    if (out->alignment == 0)
        out->alignment = out->element;
    return out->name != NULL && out->element != 0;
}

/* ---- kernels ---- */

static bool add_param(struct sim_ptx_kernel *kernel, const struct declaration *param, size_t *end)
{
    if (kernel->param_count == SIM_MAX_PARAMS || param->alignment == 0)
        return false;
    int index = kernel->param_count++;
    size_t offset = (*end + param->alignment - 1) / param->alignment * param->alignment;
    kernel->offsets[index] = offset;
    kernel->sizes[index] = param->element * param->count;
    *end = offset + kernel->sizes[index];
    if (param->integer && kernel->first_u64 < 0)
        kernel->first_u64 = index;
    return true;
}

static bool read_params(const char **at, struct sim_ptx_kernel *kernel)
{
    size_t end = 0;
    if (!take_char(at, '(') || take_char(at, ')'))
        return true;
    do {
        struct declaration param;
        bool good = take(at, ".param") && read_declaration(at, &param) && add_param(kernel, &param, &end);
        if (!good)
            return false;
        free(param.name);
    } while (take_char(at, ','));
    return take_char(at, ')');
}

static CUresult add_kernel(struct sim_ptx *ptx, const char **at)
{
    struct sim_ptx_kernel *grown = realloc(ptx->kernels, (size_t)(ptx->kernel_count + 1) * sizeof *grown);
    if (grown == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    ptx->kernels = grown;
    struct sim_ptx_kernel *kernel = &grown[ptx->kernel_count];
    *kernel = (struct sim_ptx_kernel){.first_u64 = -1, .name = take_name(at)};
    if (kernel->name == NULL)
        return CUDA_ERROR_INVALID_PTX;
    ptx->kernel_count++;
    return read_params(at, kernel) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
}

static CUresult add_global(struct sim_ptx *ptx, const char **at)
{
    struct declaration global;
    if (!read_declaration(at, &global)) {
        free(global.name);
        return CUDA_ERROR_INVALID_PTX;
    }
    struct sim_ptx_global *grown = realloc(ptx->globals, (size_t)(ptx->global_count + 1) * sizeof *grown);
    if (grown == NULL) {
        free(global.name);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ptx->globals = grown;
    grown[ptx->global_count++] = (struct sim_ptx_global){global.name, global.element * global.count};
    return CUDA_SUCCESS;
}

/* ---- the text ---- */

static const char *skip_body(const char *at)
{
    int depth = 0;
    do {
        at = skip(at);
        if (*at == '\0')
            return at;
        depth += *at == '{' ? 1 : *at == '}' ? -1 : 0;
        at++;
    } while (depth > 0);
    return at;
}

CUresult sim_ptx_read(const char *text, struct sim_ptx *out)
{
    *out = (struct sim_ptx){0};
    const char *at = text;
    if (!take(&at, ".version"))
        return strstr(text, ".entry") != NULL || *skip(text) == '.' ? CUDA_ERROR_INVALID_PTX : CUDA_ERROR_INVALID_IMAGE;
    CUresult result = strstr(at, ".target") == NULL ? CUDA_ERROR_INVALID_PTX : CUDA_SUCCESS;
    for (at = skip(at); *at != '\0' && result == CUDA_SUCCESS; at = skip(at)) {
        size_t length = word_length(at);
        if (take(&at, ".entry"))
            result = add_kernel(out, &at);
        else if (take(&at, ".global") || take(&at, ".const"))
            result = add_global(out, &at);
        else if (*at == '{')
            at = skip_body(at);
        else
            at += length == 0 ? 1 : length;
    }
    if (result != CUDA_SUCCESS)
        sim_ptx_free(out);
    return result;
}

void sim_ptx_free(struct sim_ptx *ptx)
{
    for (int i = 0; i < ptx->kernel_count; i++)
        free(ptx->kernels[i].name);
    for (int i = 0; i < ptx->global_count; i++)
        free(ptx->globals[i].name);
    free(ptx->kernels);
    free(ptx->globals);
    *ptx = (struct sim_ptx){0};
}
