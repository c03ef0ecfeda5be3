{{/* What a driver in a pod is told about Spark. Kubernetes fills in $(POD_IP) and $(POD_NAME). */}}
{{- define "lakerunner.sparkOptions" -}}
{{- $ports := (include "lakerunner.connections" . | fromYaml).ports -}}
{{- $executor := .Values.spark.executor -}}
{{- $options := dict
  "spark.driver.host" "$(POD_IP)"
  "spark.driver.bindAddress" "0.0.0.0"
  "spark.driver.port" (index $ports "spark-driver")
  "spark.blockManager.port" (index $ports "spark-blocks")
-}}
{{- if eq .Values.spark.mode "kubernetes" -}}
{{- $options = merge $options (dict
  "spark.executor.cores" $executor.cores
  "spark.executor.memory" $executor.memory
  "spark.executor.memoryOverhead" $executor.memoryOverhead
  "spark.dynamicAllocation.enabled" "true"
  "spark.dynamicAllocation.shuffleTracking.enabled" "true"
  "spark.dynamicAllocation.minExecutors" $executor.min
  "spark.dynamicAllocation.maxExecutors" $executor.max
  "spark.kubernetes.namespace" .Release.Namespace
  "spark.kubernetes.driver.pod.name" "$(POD_NAME)"
  "spark.kubernetes.container.image" (include "lakerunner.image" .)
  "spark.kubernetes.container.image.pullPolicy" .Values.image.pullPolicy
  "spark.kubernetes.executor.podTemplateFile" "/etc/lakerunner/executor.yaml"
  "spark.kubernetes.executor.podTemplateContainerName" "executor"
  "spark.kubernetes.authenticate.executor.serviceAccountName" (include "lakerunner.serviceAccount" .)
) -}}
{{- if .Values.image.pullSecrets }}{{ $_ := set $options "spark.kubernetes.container.image.pullSecrets" (join "," .Values.image.pullSecrets) }}{{ end -}}
{{- end -}}
{{- $words := list -}}
{{- range $name, $value := $options }}{{ $words = append $words (printf "%s=%v" $name $value) }}{{ end -}}
{{- with .Values.config.spark }}{{ with .options }}{{ $words = append $words . }}{{ end }}{{ end -}}
{{- if hasKey .Values.secrets "spark.options" }}{{ $words = append $words "$(SPARK_SECRET_OPTIONS)" }}{{ end -}}
{{- join " " $words -}}
{{- end -}}

{{/* The pods of executors, in the form of Spark's pod templates. They reach the bucket and their drivers, nothing else. */}}
{{- define "lakerunner.executorPod" -}}
apiVersion: v1
kind: Pod
metadata:
  labels:
    {{- include "lakerunner.labels" . | nindent 4 }}
    app.kubernetes.io/component: spark-executor
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- with .Values.spark.executor.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.spark.executor.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: executor
      image: {{ include "lakerunner.image" . }}
      securityContext:
        {{- toYaml .Values.containerSecurityContext | nindent 8 }}
      env:
        # Executors have no settings of their own; whatever they need to write is here.
        - {name: HOME, value: /data}
        - {name: TMPDIR, value: /tmp}
        - {name: NUMBA_CACHE_DIR, value: /data/kernels}
        {{- with .Values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- include "lakerunner.envFrom" (list . (list "bucket")) | nindent 6 }}
      volumeMounts:
        - {name: data, mountPath: /data}
        - {name: tmp, mountPath: /tmp}
        {{- include "lakerunner.fileMounts" . | nindent 8 }}
  volumes:
    - {name: data, emptyDir: {}}
    - {name: tmp, emptyDir: {}}
    {{- include "lakerunner.fileVolumes" . | nindent 4 }}
{{- end -}}
