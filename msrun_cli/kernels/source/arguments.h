// What MindSpore hands to a kernel of its ops.Custom: `params` are the addresses of inputs and outputs, in this order.
#pragma once

#include <cstdint>

#define MSRUN_KERNEL(name)                                                                                       \
  extern "C" __attribute__((visibility("default"))) int name(int nparam, void **params, int *ndims,              \
                                                             int64_t **shapes, const char **dtypes, void *stream, \
                                                             void *extra)

namespace msrun {

constexpr int DONE = 0, WRONG_ARGUMENTS = 1, NO_MEMORY = 2;

inline const float *input(void **params, int index) { return static_cast<const float *>(params[index]); }
inline float *output(void **params, int index) { return static_cast<float *>(params[index]); }

inline int64_t numbers(const int64_t *shape, int dimensions) {
  int64_t count = 1;
  for (int i = 0; i < dimensions; ++i) count *= shape[i];
  return count;
}

}  // namespace msrun
