#!/bin/bash
# Runs lakerunner with the arguments given, or an executor where Spark on Kubernetes asks for one.
set -euo pipefail

# Kernels for every processor of the last ten years, so that those in the image fit all machines.
if [ "$(uname -m)" = x86_64 ]; then
    export NUMBA_CPU_NAME=${NUMBA_CPU_NAME-x86-64-v3}
    export NUMBA_CPU_FEATURES=${NUMBA_CPU_FEATURES-+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+popcnt,+sse4.2}
else
    export NUMBA_CPU_NAME=${NUMBA_CPU_NAME-generic}
fi

if [ "${1-}" != executor ]; then
    exec lakerunner "$@"
fi

# Spark passes what an executor needs by variables; its own images have a script like this one.
options=()
while IFS= read -r variable; do
    option=${!variable}
    # A module that the Java of this image lacks, and that nothing here uses.
    [ "$option" = --add-modules=jdk.incubator.vector ] || options+=("$option")
done < <(compgen -e SPARK_JAVA_OPT_ | sort -t_ -k4 -n)
exec "${JAVA_HOME:-/opt/java}/bin/java" \
    "${options[@]}" \
    "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CLASSPATH-}:${SPARK_HOME:-/opt/spark}/jars/*:${SPARK_CONF_DIR-}" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
