// What an update does with all parameters of a network, each in one kernel instead of one operator per parameter.
//
// The parameters are cut into pieces of a fixed size, so that no result depends on the number of threads.
#include <algorithm>
#include <vector>

#include "arguments.h"
#include "arithmetic.h"
#include "parallel.h"

namespace {

using namespace msrun;

struct Piece {
  int index;  // of the tensor among those of its kind
  int64_t start, count;
};

constexpr int64_t PIECE = 16384;

// The pieces of `tensors` inputs from the one with the number `first` on.
std::vector<Piece> pieces(int first, int tensors, const int *ndims, int64_t **shapes) {
  std::vector<Piece> found;
  for (int index = 0; index < tensors; ++index) {
    const int64_t count = numbers(shapes[first + index], ndims[first + index]);
    for (int64_t start = 0; start < count; start += PIECE)
      found.push_back({index, start, std::min(PIECE, count - start)});
  }
  return found;
}

}  // namespace

// tensors -> sum of the squares of all their numbers.
MSRUN_KERNEL(SquareSum) {
  const int tensors = nparam - 1;
  if (tensors < 1) return WRONG_ARGUMENTS;
  const auto parts = pieces(0, tensors, ndims, shapes);
  std::vector<double> sums(parts.size());
  Threads::get().run(static_cast<int64_t>(parts.size()), [&](int64_t task) {
    const Piece &part = parts[task];
    const float *values = input(params, part.index) + part.start;
    sums[task] = sum(part.count, [values](int64_t i) { return values[i] * values[i]; });
  });
  double total = 0.0;
  for (double part : sums) total += part;
  *output(params, tensors) = static_cast<float>(total);
  return DONE;
}

// share (), averages, values -> 1; average += share * (value - average), in place.
MSRUN_KERNEL(MovingAverage) {
  const int tensors = (nparam - 2) / 2;
  if (nparam != 2 * tensors + 2) return WRONG_ARGUMENTS;
  const float share = *input(params, 0);
  const auto parts = pieces(1, tensors, ndims, shapes);
  Threads::get().run(static_cast<int64_t>(parts.size()), [&](int64_t task) {
    const Piece &part = parts[task];
    float *average = output(params, 1 + part.index) + part.start;
    const float *value = input(params, 1 + tensors + part.index) + part.start;
    for (int64_t i = 0; i < part.count; ++i) average[i] += share * (value[i] - average[i]);
  });
  *output(params, nparam - 1) = 1.0f;
  return DONE;
}

// factor, momentum (), rates, weight decays (one of each tensor), nesterov (0 or 1), parameters, velocities, gradients
// -> 1; in place: g = gradient * factor + decay * p; v = momentum * v + g; p -= rate * (g + momentum * v), or rate * v
// without Nesterov's look-ahead.
MSRUN_KERNEL(MomentumUpdate) {
  constexpr int SETTINGS = 5;
  const int tensors = (nparam - SETTINGS - 1) / 3;
  if (nparam != 3 * tensors + SETTINGS + 1) return WRONG_ARGUMENTS;
  const float factor = *input(params, 0), momentum = *input(params, 1);
  const float *rates = input(params, 2), *decays = input(params, 3);
  const bool nesterov = *input(params, 4) != 0.0f;
  const auto parts = pieces(SETTINGS, tensors, ndims, shapes);
  Threads::get().run(static_cast<int64_t>(parts.size()), [&](int64_t task) {
    const Piece &part = parts[task];
    float *parameter = output(params, SETTINGS + part.index) + part.start;
    float *velocity = output(params, SETTINGS + tensors + part.index) + part.start;
    const float *gradient = input(params, SETTINGS + 2 * tensors + part.index) + part.start;
    const float rate = rates[part.index], decay = decays[part.index];
    // v alone, or g + momentum * v
    const float of_gradient = nesterov ? 1.0f : 0.0f, of_velocity = nesterov ? momentum : 1.0f;
    for (int64_t i = 0; i < part.count; ++i) {
      const float g = gradient[i] * factor + decay * parameter[i];
      const float v = momentum * velocity[i] + g;
      velocity[i] = v;
      parameter[i] -= rate * (of_gradient * g + of_velocity * v);
    }
  });
  *output(params, nparam - 1) = 1.0f;
  return DONE;
}

// values (N,), tensors of N numbers together -> 1; the tensors take the values, one after the other, in place.
MSRUN_KERNEL(Unpack) {
  const int tensors = nparam - 2;
  if (tensors < 1) return WRONG_ARGUMENTS;
  const float *values = input(params, 0);
  for (int index = 1; index <= tensors; ++index) {
    const int64_t count = numbers(shapes[index], ndims[index]);
    std::copy(values, values + count, output(params, index));
    values += count;
  }
  *output(params, nparam - 1) = 1.0f;
  return DONE;
}
