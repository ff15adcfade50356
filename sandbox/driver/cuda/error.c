/* Names and descriptions of errors. */
#include "../include/simcuda.h"

struct error {
    CUresult value;
    const char *name, *text;
};

static const struct error errors[] = {
#define ERROR(name, value, text) {name, #name, text},
#include "../entries/errors.def"
#undef ERROR
};

static const struct error *find(CUresult value)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].value == value)
            return &errors[i];
    return NULL;
}

SIM_API CUresult cuGetErrorName(CUresult value, const char **name)
{
    const struct error *error = find(value);
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *name = error == NULL ? NULL : error->name;
    return error == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SIM_API CUresult cuGetErrorString(CUresult value, const char **text)
{
    const struct error *error = find(value);
    if (text == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *text = error == NULL ? NULL : error->text;
    return error == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
