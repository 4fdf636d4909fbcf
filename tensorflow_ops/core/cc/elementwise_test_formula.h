// A formula with all kinds of conditions, for elementwise_test.cc.
#ifndef TENSORFLOW_OPS_CORE_CC_ELEMENTWISE_TEST_FORMULA_H_
#define TENSORFLOW_OPS_CORE_CC_ELEMENTWISE_TEST_FORMULA_H_

#include "tensorflow_ops/core/cc/elementwise.h"

namespace tfo {
namespace TFO_FORMULA_NAMESPACE {

template <typename V>
TFO_FORMULA V ChosenValue(bool flag, double number, V x, V y) {
  const V limit = Number<V>(number);
  const V a = x > y || x != x ? x : y;
  const V b = flag && (x > 0 || !(y < limit)) ? 2 * x + 1 : limit - y;
  const V c = (x <= 1 && y >= -1) || !flag ? Number<V>(3) : b;
  const V d = flag ? a : -a;
  const V e = (x == y && flag) || x < -1 ? d : c + (flag || y == 0 ? a : b);
  return x == 3 && !flag ? limit : e;
}

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_ELEMENTWISE_TEST_FORMULA_H_
