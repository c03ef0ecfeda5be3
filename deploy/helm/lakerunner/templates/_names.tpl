{{/* Names and labels. */}}

{{- define "lakerunner.fullname" -}}
{{- if contains "lakerunner" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-lakerunner" (.Release.Name | trunc 29 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{/* Labels of what belongs to the release as a whole. */}}
{{- define "lakerunner.labels" -}}
app.kubernetes.io/name: lakerunner
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* Labels by which the pods of one role are found: (root, role). */}}
{{- define "lakerunner.selector" -}}
app.kubernetes.io/name: lakerunner
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "lakerunner.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "lakerunner.serviceAccount" -}}
{{- if .Values.serviceAccount.name -}}{{ .Values.serviceAccount.name }}
{{- else if .Values.serviceAccount.create -}}{{ include "lakerunner.fullname" . }}
{{- else -}}default{{- end -}}
{{- end -}}

{{/* The account of pods that start Spark's executors. */}}
{{- define "lakerunner.sparkAccount" -}}
{{- if .Values.spark.serviceAccount.name -}}{{ .Values.spark.serviceAccount.name }}
{{- else if .Values.spark.serviceAccount.create -}}{{ include "lakerunner.fullname" . }}-spark
{{- else -}}{{ include "lakerunner.serviceAccount" . }}{{- end -}}
{{- end -}}
